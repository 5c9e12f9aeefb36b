"""The stubs: what landing code uses of SGLang, and its check against an install.

mypy checks landing code against the stubs, so that it uses nothing else. Each name in
them must be there in the install: declared, assigned or inherited, a function with
these parameters, and a coroutine exactly if the stub is one.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from agentcore_patches.edits import Edit, Land
from agentcore_patches.errors import SourceConflict
from agentcore_patches.patches.paths import LANDING
from agentcore_patches.patches.releases import is_between
from agentcore_patches.planning.classes import (
    Class,
    Function,
    Install,
    Unresolved,
    find_call_problem,
    is_coroutine,
    is_property,
    parameters,
)

FOLDER = Path(__file__).parents[1] / "stubs" / "sglang"

_SINCE = re.compile(r"# since (\S+)")
_UNTIL = re.compile(r"# until (\S+)")
_BY = re.compile(r"# by (\S+)")


@dataclass(frozen=True)
class Use:
    """A name of SGLang that landing code uses.

    Attributes:
        owner: the class that has it; None for a name of the module.
        file: the module's path below `sglang`.
        node: its declaration in the stub.
        since, until: the first and the last release that has it; empty for no limit.
        by: the folder of the extra that adds it; empty for other names.
    """

    owner: Class | None
    file: str
    name: str
    node: ast.stmt
    since: str
    until: str
    by: str


@cache
def uses() -> tuple[Use, ...]:
    """Return everything that the stubs declare."""
    return tuple(
        use
        for path in sorted(FOLDER.rglob("*.pyi"))
        for use in uses_in(
            path.read_text(), path.relative_to(FOLDER).with_suffix(".py").as_posix()
        )
    )


def uses_in(stub: str, file: str) -> Iterator[Use]:
    """Yield what the stub of a file declares."""
    lines = stub.splitlines()
    for node in ast.parse(stub).body:
        if (use := _use(None, file, node, lines)) is None:
            continue
        yield use
        for member in node.body if isinstance(node, ast.ClassDef) else ():
            of_class = _use(Class(file, use.name), file, member, lines)
            if of_class is not None:
                yield replace(
                    of_class,
                    since=of_class.since or use.since,
                    until=of_class.until or use.until,
                )


def _use(
    owner: Class | None, file: str, node: ast.stmt, lines: list[str]
) -> Use | None:
    match node:
        case ast.AnnAssign(target=ast.Name(id=name)):
            pass
        case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
            name = node.name
        case _:
            return None
    first, last = lines[node.lineno - 1], lines[(node.end_lineno or node.lineno) - 1]
    comment = first if isinstance(node, ast.ClassDef) else last
    since, until, by = (
        found[1] if (found := mark.search(comment)) else ""
        for mark in (_SINCE, _UNTIL, _BY)
    )
    return Use(owner, file, name, node, since, until, by)


def refuse_missing(edits: Iterable[Edit], install: Install, release: str) -> None:
    """Refuse an install that lacks a name which landing code uses.

    Raises:
        SourceConflict: says what is missing, and which code uses it.
    """
    edits = list(edits)
    landed = [edit.file for edit in edits if isinstance(edit, Land)]
    if not landed:
        return
    for use in uses():
        extra = f"{LANDING}/{use.by}/"
        if not is_between(release, use.since, use.until) or (
            use.by and not any(file.startswith(extra) for file in landed)
        ):
            continue
        problem = _find_problem(use, install)
        if problem and (user := _user(use, edits)) is not None:
            raise SourceConflict(f"{user} would use {problem}")


def _user(use: Use, edits: Iterable[Edit]) -> str | None:
    """Name the landing module that uses a name, or the hook; None if none does."""
    word = re.compile(rf"\b{use.name}\b")
    in_landing = word
    if use.owner is not None:
        # `x.name`, a name in a string, or one that a class overrides.
        in_landing = re.compile(rf'(?:[."]|def ){use.name}\b')
        if use.name.startswith("__"):
            in_landing = re.compile(rf"\b{use.owner.name}\b")
    for edit in edits:
        if isinstance(edit, Land):
            if in_landing.search(edit.text):
                return edit.file
        elif word.search(edit.where):
            return f"{edit.file}: in {edit.where}, new code ({edit.name})"
    return None


def _find_problem(use: Use, install: Install) -> str | None:
    """Return what an install lacks; None if it has the name as the stub declares it."""
    try:
        if use.owner is None:
            return _find_missing_name(use, install)
        return _find_missing_member(use, use.owner, install)
    except Unresolved as unknown:
        return str(unknown)


def _find_missing_member(use: Use, wanted: Class, install: Install) -> str | None:
    """Return what a class lacks; None if it has the member as the stub declares it."""
    what = f"`{use.name}` of `{wanted.name}`"
    owner = install.defined(wanted)
    if owner is None:
        return f"{what} of {install.origin(wanted).file}, which is absent"
    if use.name in ("__dict__", "__weakref__"):
        if install.is_closed(owner):
            return f"`{owner.name}`, which takes no other attributes in {owner.file}"
        return None
    stub = use.node if isinstance(use.node, Function) else None
    if stub is not None and is_property(stub):
        stub = None
    method = install.method(owner, use.name)
    if method is None:
        if stub is not None and use.name == "__init__":
            return _find_other_field(stub, owner, install)
    elif stub is not None:
        problem = _find_other_signature(stub, *method, install)
        return problem and f"{what}, which {problem} in {method[0].file}"
    elif not is_property(method[1]) or is_coroutine(method[1]):
        return f"{what}, which is a method in {method[0].file}"
    if isinstance(use.node, ast.AnnAssign) and install.is_frozen(owner):
        return f"{what}, which is frozen in {owner.file}"
    if install.has_attribute(owner, use.name):
        return None
    return f"{what}, which neither it nor a base of it defines in {owner.file}"


def _find_missing_name(use: Use, install: Install) -> str | None:
    """Return what a module lacks; None if it has the name, or imports it."""
    wanted = Class(use.file, use.name)
    what = f"`{use.name}` of {install.origin(wanted).file}"
    if isinstance(use.node, Function):
        function = install.function(wanted)
        if function is None:
            return f"{what}, which is absent"
        problem = _find_other_signature(use.node, wanted, function, install)
        return problem and f"{what}, which {problem}"
    if isinstance(use.node, ast.ClassDef):
        found = install.defined(wanted) is not None
    else:
        found = install.has_name(use.file, use.name)
    return None if found else f"{what}, which is absent"


def _find_other_signature(
    stub: Function, place: Class, function: Function, install: Install
) -> str | None:
    """Return how a function differs from its stub; None if it can be called like it."""
    if is_property(function):
        return "is a property"
    is_either = stub.returns is not None and "Awaitable" in ast.unparse(stub.returns)
    is_async = isinstance(stub, ast.AsyncFunctionDef)
    if not is_either and is_async != is_coroutine(function):
        return "is a coroutine" if is_coroutine(function) else "is no coroutine"
    arguments = stub.args
    is_method = "." in place.name
    names = [arg.arg for arg in arguments.args]
    if is_method and not arguments.posonlyargs:
        names = names[1:]
    any_name = [None] * len(arguments.posonlyargs[is_method:])
    # A wrapper looks keywords up: `**kwargs` does not have them.
    has = {*parameters(function), *install.added_parameters(place)}
    keywords = _keywords(stub)
    for name in keywords:
        if name not in has:
            return f"has no parameter `{name}`"
    return find_call_problem(
        function,
        [*any_name, *names],
        keywords=(),
        given=None
        if arguments.kwarg
        else [n for n, given in keywords.items() if given],
        is_method=is_method,
    )


def _keywords(stub: Function) -> dict[str, bool]:
    """Return the names of keyword parameters; True for those that calls always pass."""
    arguments = stub.args
    return {
        arg.arg: default is None
        for arg, default in zip(
            arguments.kwonlyargs, arguments.kw_defaults, strict=True
        )
    }


def _find_other_field(stub: Function, owner: Class, install: Install) -> str | None:
    """Return why a dataclass, or a model, cannot be made; None if it can."""
    what = f"`{owner.name}` of {owner.file}"
    keywords = _keywords(stub)
    for name in keywords:
        if not install.has_attribute(owner, name):
            return f"{what}, which has no field `{name}`"
    for name in () if stub.args.kwarg else install.needed_fields(owner):
        if not keywords.get(name):
            return f"{what}, which also needs `{name}`"
    return None
