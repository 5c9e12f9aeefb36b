"""Find the statements of a definition that none of its edits can match.

libcst is slow: they are left out of what it parses and prints.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import cache
from typing import TypeAlias

from agentcore_patches.edits.base import DefinitionEdit
from agentcore_patches.edits.matching import capture_names, is_capture

DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)

Span: TypeAlias = tuple[int, int]
"""First line, and line after the last, counted from 0."""
_Sought: TypeAlias = tuple[type[ast.stmt], frozenset[str]]
"""The kind of a statement, and the names in it."""


def span(node: ast.stmt) -> Span:
    decorators = getattr(node, "decorator_list", [])
    assert node.end_lineno is not None
    return min(part.lineno for part in [node, *decorators]) - 1, node.end_lineno


def unneeded(
    definition: ast.stmt,
    lines: Sequence[str],
    scope: str,
    edits: Sequence[DefinitionEdit],
) -> list[Span]:
    """Return the lines of the outermost statements that no edit in a definition needs.

    Statements that share a line with other code are not among them.
    """
    sought = [one for edit in edits for shape in edit.shapes for one in _sought(shape)]
    _, spans = _look_in(definition, lines, scope, edits, sought)
    return spans


def _look_in(
    node: ast.stmt,
    lines: Sequence[str],
    scope: str,
    edits: Sequence[DefinitionEdit],
    sought: Sequence[_Sought],
) -> tuple[bool, list[Span]]:
    """Return whether an edit can match in a node, and the statements that none needs."""
    any_needed = False
    spans: list[Span] = []
    children = _children(node)
    # New fields come after the last one.
    kept = [child for child in children if isinstance(child, ast.AnnAssign)][-1:]
    for child in children:
        start, end = span(child)
        text = "".join(lines[start:end])
        here = [one for one in sought if all(name in text for name in one[1])]
        inner = f"{scope}.{child.name}" if isinstance(child, DEFINITIONS) else scope
        needed = child in kept or isinstance(child, tuple(kind for kind, _ in here))
        if inner != scope:
            needed |= any(f"{edit.scope}.".startswith(f"{inner}.") for edit in edits)
        within: list[Span] = []
        if needed or here:
            deeper, within = _look_in(child, lines, inner, edits, here)
            needed |= deeper
        if needed or not _is_apart(child, lines):
            any_needed |= needed
            spans += within
        else:
            spans.append((start, end))
    return any_needed, spans


@cache
def _sought(shape: str) -> tuple[_Sought, ...]:
    """Return the kinds and the names of the statements that a shape can match."""
    found: list[_Sought] = []
    blocks = _blocks(ast.parse(capture_names(shape)))
    for block in blocks:
        for statement in block:
            nodes = list(ast.walk(statement))
            names = {
                node.id
                for node in nodes
                if isinstance(node, ast.Name) and not is_capture(node.id)
            }
            names |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
            # An expression may be in a statement of any kind.
            kind = ast.stmt if isinstance(statement, ast.Expr) else type(statement)
            found.append((kind, frozenset(names)))
            blocks += [inner for inner in _blocks(statement) if not _is_any(inner)]
    return tuple(found)


def _is_any(block: list[ast.stmt]) -> bool:
    """True if a block in a shape matches any block."""
    match block:
        case [ast.Expr(value=ast.Constant(value=value))]:
            return value is ...
    return False


def _is_apart(statement: ast.stmt, lines: Sequence[str]) -> bool:
    """True if a statement can be cut out without changing its neighbours."""
    _, end = span(statement)
    first = lines[statement.lineno - 1]
    margin = first.removesuffix(first.lstrip())
    assert statement.end_col_offset is not None
    behind = lines[end - 1].encode()[statement.end_col_offset :]
    is_docstring = isinstance(statement, ast.Expr) and isinstance(
        statement.value, ast.Constant
    )
    return (
        len(margin) == statement.col_offset
        and not first.startswith("elif", len(margin))
        and not behind.partition(b"#")[0].strip()
        and not is_docstring
        and not (_children(statement) and _has_lines_below(lines, end, margin))
    )


def _has_lines_below(lines: Sequence[str], end: int, margin: str) -> bool:
    """True if comments or blank lines of a statement's last block follow it."""
    for line in lines[end:]:
        code = line.strip()
        if code and not code.startswith("#"):
            break
        if line.removeprefix(margin).startswith((" ", "\t")):
            return True
    return False


def _children(node: ast.AST) -> list[ast.stmt]:
    return [statement for block in _blocks(node) for statement in block]


def _blocks(node: ast.AST) -> list[list[ast.stmt]]:
    """Return the blocks of a node, without the blocks of their statements."""
    found: list[list[ast.stmt]] = []
    for name in ("body", "handlers", "orelse", "finalbody", "cases"):
        match getattr(node, name, None):
            case [ast.stmt(), *_] as block:
                found.append(block)
            case [*parts]:
                for part in parts:
                    found += _blocks(part)
    return found
