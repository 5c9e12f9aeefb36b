"""The stubs: what new code uses of SGLang, and its check against an install.

mypy checks landing code against the stubs, and a test the code of hooks, so that they use
nothing else. Each name in the stubs must be there in the install: declared, assigned or
inherited, a function with these parameters, and a coroutine exactly if the stub is one.
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
    Found,
    Function,
    Install,
    Unresolved,
    is_coroutine,
    is_property,
    parameters,
)

FOLDER = Path(__file__).parents[1] / "stubs" / "sglang"

_LIMIT = re.compile(r"# (since|until|by) (\S+)")


@dataclass(frozen=True)
class Use:
    """A name of SGLang that landing code or a hook uses.

    Attributes:
        owner: the class that has it; empty for a name of the module.
        file: the module's path below `sglang`.
        node: its declaration in the stub.
        since, until: the first and the last release that has it; empty for no limit.
        by: the folder of the extra that adds it; empty for other names.
    """

    owner: str
    file: str
    name: str
    node: ast.stmt
    since: str = ""
    until: str = ""
    by: str = ""


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
        if (use := _use("", file, node, lines)) is None:
            continue
        yield use
        for member in node.body if isinstance(node, ast.ClassDef) else ():
            of_class = _use(use.name, file, member, lines)
            if of_class is not None:
                yield replace(
                    of_class,
                    since=of_class.since or use.since,
                    until=of_class.until or use.until,
                )


def _use(owner: str, file: str, node: ast.stmt, lines: list[str]) -> Use | None:
    match node:
        case ast.AnnAssign(target=ast.Name(id=name)):
            pass
        case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
            name = node.name
        case _:
            return None
    first, last = lines[node.lineno - 1], lines[(node.end_lineno or node.lineno) - 1]
    comment = first if isinstance(node, ast.ClassDef) else last
    return Use(owner, file, name, node, **dict(_LIMIT.findall(comment)))


def refuse_missing(edits: Iterable[Edit], install: Install, release: str) -> None:
    """Refuse an install that lacks a name which new code uses.

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
    in_code = word
    if use.owner:
        # `x.name`, a name in a string, or one that a class overrides.
        in_code = re.compile(rf'(?:[."]|def ){use.name}\b')
        if use.name.startswith("__"):
            in_code = re.compile(rf"\b{use.owner}\b")
    for edit in edits:
        if isinstance(edit, Land):
            if in_code.search(edit.text):
                return edit.file
        elif word.search(edit.where) or in_code.search(edit.new_code):
            return f"{edit.file}: in {edit.where}, new code ({edit.name})"
    return None


def _find_problem(use: Use, install: Install) -> str | None:
    """Return what an install lacks; None if it has the name as the stub declares it."""
    file, _ = install.origin(use.file, use.owner or use.name)
    what = f"`{use.name}` of {f'`{use.owner}`' if use.owner else file}"
    try:
        if use.owner:
            return _find_missing_member(what, file, use, install)
        return _find_missing_name(what, use, install)
    except Unresolved as unknown:
        return str(unknown)


def _find_missing_member(
    what: str, file: str, use: Use, install: Install
) -> str | None:
    """Return what a class lacks; None if it has the member as the stub declares it."""
    owner = install.find(use.file, use.owner)
    if owner is None or owner.function:
        return f"{what} of {file}, which is absent"
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
        problem = _find_other_signature(stub, method)
        return problem and f"{what}, which {problem} in {method.file}"
    elif method.function and not is_property(method.function):
        return f"{what}, which is a method in {method.file}"
    if isinstance(use.node, ast.AnnAssign) and install.is_frozen(owner):
        return f"{what}, which is frozen in {owner.file}"
    if install.has_attribute(owner, use.name):
        return None
    return f"{what}, which neither it nor a base of it defines in {owner.file}"


def _find_missing_name(what: str, use: Use, install: Install) -> str | None:
    """Return what a module lacks; None if it has the name, or imports it."""
    found = install.find(use.file, use.name)
    if isinstance(use.node, Function):
        if found is not None and found.function:
            problem = _find_other_signature(use.node, found)
            return problem and f"{what}, which {problem}"
    elif isinstance(use.node, ast.ClassDef):
        if found is not None and not found.function:
            return None
    elif install.has_name(use.file, use.name):
        return None
    return f"{what}, which is absent"


def _find_other_signature(stub: Function, found: Found) -> str | None:
    """Return how a function differs from its stub; None if it can be called like it."""
    function = found.function
    assert function is not None
    if is_property(function):
        return "is a property"
    is_either = stub.returns is not None and "Awaitable" in ast.unparse(stub.returns)
    is_async = isinstance(stub, ast.AsyncFunctionDef)
    if not is_either and is_async != is_coroutine(function):
        return "is a coroutine" if is_coroutine(function) else "is no coroutine"

    names = [*(None for _ in stub.args.posonlyargs), *(a.arg for a in stub.args.args)]
    places = [arg.arg for arg in (*function.args.posonlyargs, *function.args.args)]
    first, n_required = 0, len(places) - len(function.args.defaults)
    if "." in found.name:
        names = names[1:]
        if "staticmethod" not in map(ast.unparse, function.decorator_list):
            first = 1
    required = [*places[first:n_required], *_keywords(function, required=True)]
    places = places[first:]
    for place, name in enumerate(names):
        if place >= len(places):
            if not function.args.vararg:
                return f"takes only {len(places)} positional arguments"
        elif name not in (None, places[place]):
            return f"has `{places[place]}` in place of the parameter `{name}`"
    # A wrapper looks keywords up: `**kwargs` does not have them.
    for name in _keywords(stub):
        if name not in parameters(function):
            return f"has no parameter `{name}`"
    given = {*places[: len(names)], *_keywords(stub, required=True)}
    if not stub.args.kwarg and (missing := [n for n in required if n not in given]):
        return f"also needs `{missing[0]}`"
    return None


def _keywords(function: Function, *, required: bool = False) -> list[str]:
    """Return the keyword parameters, or the ones that every call must pass."""
    arguments = zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
    return [arg.arg for arg, default in arguments if not (required and default)]


def _find_other_field(stub: Function, owner: Found, install: Install) -> str | None:
    """Return why a dataclass, or a model, cannot be made; None if it can."""
    what = f"`{owner.name}` of {owner.file}"
    for name in _keywords(stub):
        if not install.has_attribute(owner, name):
            return f"{what}, which has no field `{name}`"
    for name in () if stub.args.kwarg else install.needed_fields(owner):
        if name not in _keywords(stub, required=True):
            return f"{what}, which also needs `{name}`"
    return None
