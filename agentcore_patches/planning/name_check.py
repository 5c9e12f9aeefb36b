"""Refuse new code that needs undefined names, attributes, parameters or imports.

If a fork or a release renamed something or dropped an import, the edit would fit, and its
code would fail at run time.
"""

from __future__ import annotations

import ast
import builtins
import re
import symtable
from collections.abc import Iterable, Mapping
from functools import cache
from typing import TypeGuard

from agentcore_patches.edits import Edit, Land, ScopedEdit
from agentcore_patches.errors import SourceConflict
from agentcore_patches.planning.classes import (
    HELD,
    Class,
    Install,
    Read,
    Unresolved,
    attributes,
    find_call_problem,
    parameters,
)
from agentcore_patches.planning.stubs import refuse_missing


def refuse_unbound_names(old: bytes, new: bytes, file: str) -> None:
    """Refuse new code that reads an unbound name, unless the old code did."""
    unbound = _unbound_names(new, file)
    if unbound and (unbound := unbound - _unbound_names(old, file)):
        scope, name = min(unbound)
        raise SourceConflict(
            f"{file}: in `{scope or 'the module'}`, new code would use `{name}`, which "
            "nothing defines"
        )


def refuse_undefined_attributes(
    edits: Iterable[Edit], sources: Mapping[str, bytes], read: Read, release: str
) -> None:
    """Refuse edits whose code needs definitions that the install lacks.

    Looks at the code that hooks insert, and at what the stubs say of the code that lands.

    Raises:
        SourceConflict: says what is missing, and which hook needs it.
    """
    edits = list(edits)
    install = Install(sources, read, edits)
    for edit in edits:
        if not isinstance(edit, Land):
            _check_hook(edit, install)
    refuse_missing(edits, install, release)


def _check_hook(edit: Edit, install: Install) -> None:
    """Refuse a hook whose own code reads or stores an attribute that is not defined.

    An attribute of `self` must be in the class where the code lands (uses in the old code
    of the class count) or in its bases; an attribute of a name in `HELD`, in that
    class; an attribute of another variable, in the file's old code or in an edit.
    """
    _check_updates(edit, install)
    _check_calls(edit, install)
    own: set[str] = set()
    if isinstance(edit, ScopedEdit):
        own = install.added_parameters(Class(edit.file, edit.scope))
    for verb, owner, attribute in (
        *(("read", *read) for read in _reads(edit.new_code)),
        *(("store", *changed) for changed in _reads(edit.new_code, stored=True)),
    ):
        if owner in own:
            continue
        try:
            problem = _find_undefined(edit, install, owner, attribute)
        except Unresolved as unknown:
            problem = str(unknown)
        if problem:
            raise SourceConflict(
                f"{edit.file}: in {edit.where}, new code{_of(edit.name)} would {verb} "
                f"{problem}"
            )


def _find_undefined(
    edit: Edit, install: Install, owner: str, attribute: str
) -> str | None:
    """Return what a hook's code uses and nothing defines; None if it is defined.

    Raises:
        Unresolved: a base of the owner's class, or `ServerArgs`, cannot be looked up.
    """
    what = f"`{owner}.{attribute}`"
    if owner == "self":
        name = install.class_around(edit)
        around = Class(edit.file, name)
        # A mixin uses attributes of `self` that it does not define.
        if not name or install.uses_itself(around, attribute):
            return None
        if install.has_attribute(around, attribute):
            return None
        return f"{what}, which neither `{name}` nor a base of it defines"
    if (known := HELD.get(owner)) is not None:
        if install.has_attribute(known, attribute):
            return None
        return f"{what}, which neither `{known.name}` nor a base of it defines"
    if _is_known(attribute, edit, install):
        return None
    return f"{what}, which nothing in the file uses"


def _check_calls(edit: Edit, install: Install) -> None:
    """Refuse a hook that calls a function of its file, or a method, with other arguments.

    Whether the call is awaited is not looked at: SGLang's code around it may do so.
    """
    around = install.class_around(edit)
    where = f"{edit.file}: in {edit.where}, new code{_of(edit.name)} would"
    for call in _calls(edit.new_code):
        match call.func:
            case ast.Name(id=name):
                function = install.function(Class(edit.file, name))
            case ast.Attribute(value=ast.Name(id="self"), attr=name) if around:
                method = install.method(Class(edit.file, around), name)
                function = method and method[1]
            case _:
                continue
        if function is None:
            continue
        positional = [one for one in call.args if not isinstance(one, ast.Starred)]
        keywords = [keyword.arg for keyword in call.keywords if keyword.arg]
        is_whole = len(positional) == len(call.args) and len(keywords) == len(
            call.keywords
        )
        problem = find_call_problem(
            function,
            [None] * len(positional),
            keywords,
            given=keywords if is_whole else None,
            is_method=isinstance(call.func, ast.Attribute),
        )
        if problem:
            raise SourceConflict(f"{where} call `{name}`, which {problem}")


@cache
def _calls(code: str) -> tuple[ast.Call, ...]:
    return tuple(
        node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)
    )


def _check_updates(edit: Edit, install: Install) -> None:
    """Refuse a hook that updates a variable which its function lacks.

    To Python, the update itself makes it a variable of the function.
    """
    updated = {name for name, is_new in bound_by(edit.new_code).items() if not is_new}
    if not isinstance(edit, ScopedEdit) or not updated:
        return
    function_at = Class(edit.file, edit.scope)
    function = install.function(function_at)
    if function is None:
        return
    has = {*parameters(function), *install.added_parameters(function_at)}
    has |= {node.id for node in ast.walk(function) if _is_stored(node)}
    for name in sorted(updated - has):
        raise SourceConflict(
            f"{edit.file}: in {edit.where}, new code{_of(edit.name)} would update "
            f"`{name}`, which the function does not have"
        )


def _is_stored(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


@cache
def bound_by(code: str) -> Mapping[str, bool]:
    """Return the variables that code binds, with False for those it has read before."""
    is_new: dict[str, bool] = {}
    bound: set[str] = set()

    def visit(node: ast.AST) -> None:
        match node:
            case ast.Lambda() | ast.comprehension():
                return
            case ast.Name(id=name):
                is_new.setdefault(name, _is_stored(node))
                if _is_stored(node):
                    bound.add(name)
                return
            case ast.AugAssign(target=ast.Name(id=name)):
                is_new.setdefault(name, False)
            case ast.Assign(value=first) | ast.NamedExpr(value=first):
                visit(first)
            case ast.For(iter=first) | ast.AsyncFor(iter=first):
                visit(first)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(code))
    return {name: is_new[name] for name in bound}


def _is_known(attribute: str, edit: Edit, install: Install) -> bool:
    """True if the old code around a hook uses an attribute, or an edit adds it."""
    text = install.text(edit.file)
    return bool(
        not text
        or hasattr(str, attribute)
        or hasattr(list, attribute)
        or hasattr(dict, attribute)
        or hasattr(set, attribute)
        or attribute in install.added
        or re.search(rf"\b{attribute}\b", text)
    )


def _of(hook: str) -> str:
    return f" ({hook})" if hook else ""


@cache
def _reads(code: str, *, stored: bool = False) -> tuple[tuple[str, str], ...]:
    """Return the attributes that a hook's code reads or stores, except of landed code.

    Each comes with its owner: a variable, or an attribute in `HELD`.
    """
    found = attributes(code, ast.Store if stored else ast.Load)
    own = {
        node.id
        for node in (ast.walk(ast.parse(code)) if found else ())
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    return tuple(
        (owner, attribute)
        for owner, attribute in found
        if owner not in own and owner not in _OWN_MODULES
    )


# Modules: their members are not attributes of SGLang's objects.
_OWN_MODULES = ("agentcore", "dataclasses")


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
