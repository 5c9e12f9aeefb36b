"""Refuse new code that reads or updates names which nothing defines.

If a fork or a release renamed something or dropped an import, the edit would fit, and its
code would fail at run time.
"""

from __future__ import annotations

import ast
import builtins
import symtable
from collections.abc import Iterable, Iterator
from functools import cache

from agentcore_patches.edits import Edit, ScopedEdit
from agentcore_patches.errors import SourceConflict
from agentcore_patches.planning.classes import Install, parameters


def refuse_unbound_names(old: bytes, new: bytes, file: str) -> None:
    """Refuse new code that reads an unbound name, unless the old code did."""
    unbound = _unbound_names(new, file)
    if unbound and (unbound := unbound - _unbound_names(old, file)):
        scope, name = min(unbound)
        raise SourceConflict(
            f"{file}: in `{scope or 'the module'}`, new code would use `{name}`, which "
            "nothing defines"
        )


def refuse_unbound_updates(edits: Iterable[Edit], install: Install) -> None:
    """Refuse a hook that updates a variable which its function lacks.

    To Python, the update itself makes it a variable of the function. A variable that a
    hook adds begins with `agentcore_`.
    """
    for edit in edits:
        updated = _stored_in(edit.new_code)
        if not isinstance(edit, ScopedEdit) or not updated:
            continue
        found = install.find(edit.file, edit.scope)
        if found is None or not found.function:
            continue
        has = parameters(found.function) | {*_stored(found.function)}
        for name in sorted(updated - has):
            raise SourceConflict(
                f"{edit.file}: in {edit.where}, new code ({edit.name}) would update "
                f"`{name}`, which the function does not have"
            )


@cache
def _stored_in(code: str) -> frozenset[str]:
    names = _stored(ast.parse(code))
    return frozenset(name for name in names if not name.startswith("agentcore_"))


def _stored(node: ast.AST) -> Iterator[str]:
    for one in ast.walk(node):
        match one:
            case ast.Name(name, ast.Store()):
                yield name


def _globals_of(table: symtable.SymbolTable) -> Iterable[str]:
    """Return the names that a scope reads or binds in outer scopes."""
    if isinstance(table, symtable.Function):
        return table.get_globals()
    return [symbol.get_name() for symbol in table.get_symbols() if symbol.is_global()]


def _unbound_names(source: bytes, file: str) -> set[tuple[str, str]]:
    """Return unbound names, by the scope that reads them."""
    module = symtable.symtable(source, file, "exec")  # type: ignore[arg-type] # bytes do
    bound = set(dir(builtins))
    bound |= {
        symbol.get_name()
        for symbol in module.get_symbols()
        if symbol.is_assigned() or symbol.is_imported()
    }
    unbound = set()
    tables = [("", module)]
    for scope, table in tables:
        unbound |= {(scope, name) for name in _globals_of(table) if name not in bound}
        tables += [
            (f"{scope}.{child.get_name()}".lstrip("."), child)
            for child in table.get_children()
        ]
    return unbound
