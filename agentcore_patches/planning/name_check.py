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

from agentcore_patches.edits import DEFINITIONS, Edit, Land, ScopedEdit
from agentcore_patches.errors import SourceConflict
from agentcore_patches.planning import reads
from agentcore_patches.planning.classes import Function, Install, Read, Unresolved
from agentcore_patches.planning.reads import (
    ATTRIBUTES,
    AttributeNeed,
    CallNeed,
    Class,
    Classes,
    ImportNeed,
    Need,
    Wrapped,
    attributes,
)


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
    edits: Iterable[Edit], sources: Mapping[str, bytes], read: Read
) -> None:
    """Refuse edits whose code needs definitions that the install lacks.

    Looks at the code that hooks insert and at the functions that land and that they call:
    attributes, parameters that are named, the functions that decorators wrap, imports.

    Raises:
        SourceConflict: says what is missing, and which hook needs it.
    """
    edits = list(edits)
    install = Install(sources, read, edits)
    for edit in edits:
        if not isinstance(edit, Land):
            _check_hook(edit, install)
    owners: dict[Edit, Classes] = {}
    for edit in edits:
        if name := install.class_around(edit):
            owners[edit] = (Class(edit.file, name),)
    for need in dict.fromkeys(reads.needs(edits, owners)):
        _check_need(need, install)


def _check_hook(edit: Edit, install: Install) -> None:
    """Refuse a hook whose own code reads or stores an attribute that is not defined.

    An attribute of `self` must be in the class where the code lands (uses in the old code
    of the class count) or in its bases; an attribute of a name in `ATTRIBUTES`, in that
    class; an attribute of another variable, in the file's old code or in an edit.
    """
    _check_updates(edit, install)
    _check_calls(edit, install)
    own = install.added_parameters(edit) if isinstance(edit, ScopedEdit) else ()
    for verb, owner, attribute in (
        *(("read", *read) for read in _reads(edit.new_code)),
        *(("store", *changed) for changed in _reads(edit.new_code, stored=True)),
    ):
        where = f"{edit.file}: in {edit.where}, new code{_of(edit.name)} would {verb}"
        if owner in own:
            continue
        if owner == "self":
            name = install.class_around(edit)
            if name and _lacking(install, (Class(edit.file, name),), attribute, where):
                raise SourceConflict(
                    f"{where} `self.{attribute}`, which neither `{name}` nor a base of "
                    "it defines"
                )
        elif owner == "server_args":
            if not _has_server_arg(install, attribute, edit.file, where):
                raise SourceConflict(
                    f"{where} `server_args.{attribute}`, which `ServerArgs` in "
                    f"{reads.SERVER_ARGS} does not define"
                )
        elif isinstance(known := ATTRIBUTES.get(owner), tuple) and owner != "obj":
            if _lacking(install, known, attribute, where):
                raise SourceConflict(
                    f"{where} `{owner}.{attribute}`, which neither `{known[0].name}` "
                    "nor a base of it defines"
                )
        elif not _is_known(attribute, edit, install):
            raise SourceConflict(
                f"{where} `{owner}.{attribute}`, which nothing in the file uses"
            )


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
                function = install.method(Class(edit.file, around), name)
            case _:
                continue
        if function is None:
            continue
        need = CallNeed(
            edit.name,
            edit.file,
            edit.where,
            owners=(),
            method=name if isinstance(call.func, ast.Attribute) else "",
            is_awaited=is_coroutine(function),
            **reads.arguments_of(call),
        )
        if problem := _find_problem(need, function):
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
    function = install.function(Class(edit.file, edit.scope))
    if function is None:
        return
    has = {*parameters(function), *install.added_parameters(edit)}
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


def _check_need(need: Need, install: Install) -> None:
    """Refuse an install without the definitions that a landed function needs."""
    where = f"{need.module}: `{need.function}`{_of(need.hook)} would"
    match need:
        case AttributeNeed(owners=owners, attribute=attribute):
            if _is_module(owners):
                if install.has_name(owners[0].file, attribute):
                    return
                raise SourceConflict(
                    f"{where} read `{attribute}` of {owners[0].file}, which does not "
                    "define it"
                )
            verb = "store" if need.is_stored else "read"
            if attribute == "__dict__":
                _check_open(install, owners, where)
                return
            if need.is_stored:
                _check_mutable(install, owners, attribute, where)
            if owner := _lacking(install, owners, attribute, f"{where} {verb}"):
                if owner.file == reads.SERVER_ARGS:
                    raise SourceConflict(
                        f"{where} read `server_args.{attribute}`, which `ServerArgs` in "
                        f"{reads.SERVER_ARGS} does not define"
                    )
                raise SourceConflict(
                    f"{where} {verb} `{attribute}` of `{owner.name}`, which neither it "
                    f"nor a base of it defines in {owner.file}"
                )
        case CallNeed():
            _check_call(need, where, install)
        case ImportNeed(file=file, name=name):
            package = file.removesuffix(".py") + "/__init__.py"
            inside = file.removesuffix(".py") + f"/{name}.py"
            if name and install.has_file(inside):
                return
            found = [one for one in (file, package) if install.has_file(one)]
            module = file.removesuffix(".py").replace("/", ".")
            if not found:
                raise SourceConflict(f"{where} import sglang.{module}, which is absent")
            if name and not any(install.has_name(one, name) for one in found):
                raise SourceConflict(
                    f"{where} import `{name}` of {found[0]}, which does not define it"
                )
        case Wrapped():
            _check_wrapped(need, where, install)


def _is_module(owners: Classes) -> bool:
    return owners[0].name == ""


def _check_open(install: Install, owners: Classes, where: str) -> None:
    """Refuse classes whose objects take no attributes that the class does not have."""
    for owner in owners:
        if install.is_closed(owner):
            raise SourceConflict(
                f"{where} add an attribute to a `{owner.name}` of {owner.file}, which "
                "has only those that its class declares"
            )


def _check_mutable(
    install: Install, owners: Classes, attribute: str, where: str
) -> None:
    for owner in owners:
        if install.is_frozen(owner):
            raise SourceConflict(
                f"{where} store `{attribute}` of `{owner.name}` of {owner.file}, which "
                "is frozen"
            )


def _check_call(need: CallNeed, where: str, install: Install) -> None:
    """Refuse a call whose arguments the function does not accept."""
    for owner in need.owners:
        if install.defined(owner) is None and need.method:
            continue
        function = (
            install.method(owner, need.method)
            if need.method
            else install.function(owner)
        )
        name = ".".join(filter(None, (owner.name, need.method)))
        if function is None:
            if need.method == "__init__":
                _check_fields(need, owner, where, install)
            continue
        problem = _find_problem(need, function)
        if problem:
            raise SourceConflict(
                f"{where} call `{name}` of {owner.file}, which {problem}"
            )


def _check_fields(need: CallNeed, owner: Class, where: str, install: Install) -> None:
    """Refuse to make a dataclass, or a model of pydantic or msgspec, of other fields."""
    name = f"{owner.name}.__init__"
    for keyword in need.keywords:
        if _lacking(install, (owner,), keyword, f"{where} pass"):
            raise SourceConflict(
                f"{where} pass `{keyword}=` to `{name}` of {owner.file}, which has no "
                "such field"
            )
    is_required = install.fields(owner)
    given = {*list(is_required)[: need.n_positional], *need.keywords}
    for field, required in is_required.items() if need.is_whole else ():
        if required and field not in given:
            raise SourceConflict(
                f"{where} call `{name}` of {owner.file}, which also needs `{field}`"
            )


def _find_problem(need: CallNeed, function: Function) -> str | None:
    """Return why a function rejects the arguments of a call; None if it accepts them."""
    arguments = function.args
    for keyword in need.keywords:
        if not arguments.kwarg and keyword not in parameters(function):
            return f"has no parameter `{keyword}`"
    decorators = {ast.unparse(decorator) for decorator in function.decorator_list}
    if decorators & _PROPERTIES:
        return "is a property"
    if need.is_awaited != is_coroutine(function):
        return "is no coroutine" if need.is_awaited else "is a coroutine"
    if not need.is_whole:
        return None
    positional = [arg.arg for arg in (*arguments.posonlyargs, *arguments.args)]
    required = positional[: len(positional) - len(arguments.defaults)]
    if need.method and "staticmethod" not in decorators:
        positional, required = positional[1:], required[1:]
    if not arguments.vararg and need.n_positional > len(positional):
        return f"takes only {len(positional)} positional arguments"
    required += [
        arg.arg
        for arg, default in zip(
            arguments.kwonlyargs, arguments.kw_defaults, strict=True
        )
        if default is None
    ]
    given = {*positional[: need.n_positional], *need.keywords}
    missing = next((name for name in required if name not in given), None)
    return f"also needs `{missing}`" if missing else None


def _check_wrapped(need: Wrapped, where: str, install: Install) -> None:
    """Refuse a function without the parameters that its decorator expects."""
    function = install.function(Class(need.edit.file, need.edit.scope))
    if function is None:
        return
    wraps = f"{need.edit.file}: {where} decorate `{need.edit.scope}`"
    names = parameters(function)
    leading = tuple(names[: len(need.leading)])
    if leading != need.leading:
        raise SourceConflict(
            f"{wraps}, whose first parameters are {', '.join(leading) or 'none'} and "
            f"not {', '.join(need.leading)}"
        )
    for name in need.named:
        if name not in names and name not in install.added_parameters(need.edit):
            raise SourceConflict(f"{wraps}, which has no parameter `{name}`")
    bound = {ast.unparse(one) for one in function.decorator_list} & _NOT_METHODS
    if bound:
        raise SourceConflict(f"{wraps}, which is a {min(bound)}")
    if need.is_awaited not in (None, is_coroutine(function)):
        what = "no coroutine" if need.is_awaited else "a coroutine"
        raise SourceConflict(f"{wraps}, which is {what}")


_NOT_METHODS = {"classmethod", "staticmethod", "property"}

_PROPERTIES = {"property", "cached_property", "functools.cached_property"}


def is_coroutine(function: Function) -> bool:
    """True if a call of a function must be awaited; an async generator is iterated."""
    if not isinstance(function, ast.AsyncFunctionDef):
        return False
    pending: list[ast.AST] = [*function.body]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Yield):
            return False
        if not isinstance(node, (*DEFINITIONS, ast.Lambda)):
            pending += ast.iter_child_nodes(node)
    return True


def parameters(function: Function) -> list[str]:
    """Return the parameter names of a function, except `*args` and `**kwargs`."""
    arguments = function.args
    return [
        argument.arg
        for argument in (
            *arguments.posonlyargs,
            *arguments.args,
            *arguments.kwonlyargs,
        )
    ]


def _lacking(
    install: Install, owners: Classes, attribute: str, where: str
) -> Class | None:
    """Return the first of these classes in the install that lacks an attribute.

    Raises:
        SourceConflict: it has none of the classes, or a base cannot be looked up.
    """
    found = [owner for owner in owners if install.defined(owner) is not None]
    if not found:
        names = " or ".join(f"`{owner.name}` of {owner.file}" for owner in owners)
        raise SourceConflict(f"{where} `{attribute}` of {names}, which is absent")
    try:
        return next(
            (one for one in found if not install.has_attribute(one, attribute)), None
        )
    except Unresolved as unknown:
        raise SourceConflict(f"{where} {unknown}") from None


def _has_server_arg(install: Install, attribute: str, file: str, where: str) -> bool:
    """True if `ServerArgs` has an attribute, or the old code of a file reads it.

    Raises:
        SourceConflict: there is no `ServerArgs`.
    """
    try:
        return install.has_server_arg(attribute, file)
    except Unresolved as unknown:
        raise SourceConflict(f"{where} {unknown}") from None


def _of(hook: str) -> str:
    return f" ({hook})" if hook else ""


@cache
def _reads(code: str, *, stored: bool = False) -> tuple[tuple[str, str], ...]:
    """Return the attributes that a hook's code reads or stores, except of landed code.

    Each comes with its owner: a variable, or an attribute in `ATTRIBUTES`.
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
