"""Names that statements bind."""

from __future__ import annotations

import ast

from agentcore_patches.edits.matching import Block, CannotPlace


def is_bound(name: str, block: Block, code: str) -> bool:
    """True if a block already has the code, which binds a name.

    Raises:
        CannotPlace: other code binds it.
    """
    there = [node for node in block if name in _bound_names(node)]
    if there and (len(there) > 1 or not _is_same(there[0], ast.parse(code).body[0])):
        raise CannotPlace(f"there is another `{name}`")
    return bool(there)


def _is_same(there: ast.stmt, wanted: ast.stmt) -> bool:
    """True if the statement is equal, or an import of the same name and of others."""
    match there, wanted:
        case ast.ImportFrom(), ast.ImportFrom(names=[name]):
            alone = [other for other in there.names if other.name == name.name]
            there = ast.ImportFrom(there.module, alone, there.level)
    return ast.dump(there) == ast.dump(wanted)


def _bound_names(statement: ast.stmt) -> set[str]:
    """Return the names that a statement binds in its block, at any depth."""
    names: set[str] = set()
    pending: list[ast.AST] = [statement]
    while pending:
        node = pending.pop()
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                names.add(node.name)
                continue
            case ast.Lambda() | ast.comprehension():
                continue
            case ast.alias():
                names.add((node.asname or node.name).partition(".")[0])
            case ast.Name(ctx=ast.Store() | ast.Del()):
                names.add(node.id)
            case ast.ExceptHandler() | ast.MatchAs() | ast.MatchStar():
                names.add(node.name or "")
            case ast.MatchMapping():
                names.add(node.rest or "")
        pending += ast.iter_child_nodes(node)
    return names
