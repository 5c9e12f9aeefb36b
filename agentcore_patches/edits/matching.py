"""Find places: compare a shape with the statements of a definition."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, TypeAlias, TypeVar

import libcst as cst

Captures: TypeAlias = dict[str, cst.CSTNode]
Step: TypeAlias = tuple[str, int | None]
Path: TypeAlias = tuple[Step, ...]
SmallT = TypeVar("SmallT", bound=cst.BaseSmallStatement)


class CannotPlace(Exception):
    """A definition lacks the place that an edit needs; the message gives the reason."""


class InvalidEdit(Exception):
    """An edit has a mistake, which the message describes."""


def expect_one(n_found: int, what: str) -> None:
    if n_found != 1:
        times = f"found {n_found} times, expected 1" if n_found else "not found"
        raise CannotPlace(f"{what} was {times}")


def expect_one_definition(name: str, n_found: int) -> None:
    if n_found != 1:
        times = f"defined {n_found} times" if n_found else "not defined"
        raise CannotPlace(f"`{name}` is {times}")


def headline(code: str) -> str:
    return code.strip().partition("\n")[0]


# `$` is not valid Python: a capture is parsed as a name with this prefix.
_CAPTURE = "_captured_"


def capture_names(code: str) -> str:
    """Return code as valid Python: each capture `$X` becomes a name."""
    return re.sub(r"\$(?=[A-Z])", _CAPTURE, code)


def is_capture(name: str) -> bool:
    return name.startswith(_CAPTURE)


def spelled(code: str) -> str:
    """Return code as its author wrote it: the reverse of `capture_names`."""
    return code.replace(_CAPTURE, "$")


def captures_in(node: cst.CSTNode) -> frozenset[str]:
    """Return the names of captures; raise InvalidEdit where none is allowed."""
    code = cst.Module([]).code_for_node(node)
    if _CAPTURE not in code:
        return frozenset()
    names = [
        found.value
        for _, found in walk(node, compared_fields)
        if isinstance(found, cst.Name) and is_capture(found.value)
    ]
    if len(names) < code.count(_CAPTURE):
        raise InvalidEdit(
            f"`{headline(spelled(code))}` has a capture where no expression can stand"
        )
    return frozenset(names)


def refuse_unbound_captures(new: cst.CSTNode, shape: cst.CSTNode | None) -> None:
    """Raise `InvalidEdit` if new code uses a capture that its shape lacks."""
    bound = captures_in(shape) if shape else frozenset()
    if unbound := sorted(captures_in(new) - bound):
        raise InvalidEdit(
            f"`{spelled(unbound[0])}` of the new code is not captured by a shape"
        )


@cache
def parse_shape(code: str) -> cst.BaseStatement:
    """Parse code; raise InvalidEdit unless it is one statement."""
    try:
        statement = cst.parse_statement(capture_names(code))
    except cst.ParserSyntaxError as error:
        raise InvalidEdit(
            f"`{headline(code)}` cannot be parsed as one statement: {error.message}"
        ) from error
    assert isinstance(statement, cst.BaseStatement)
    return statement


def only_statement(statement: cst.CSTNode, kind: type[SmallT]) -> SmallT | None:
    match statement:
        case cst.SimpleStatementLine(body=[small]) if isinstance(small, kind):
            return small
    return None


_FORMATTING = (
    "comma",
    "end",
    "footer",
    "header",
    "indent",
    "leading_lines",
    "lines_after_decorators",
    "lpar",
    "newline",
    "rpar",
    "semicolon",
    "start",
    "trailing_whitespace",
)


@cache
def compared_fields(kind: type[cst.CSTNode]) -> tuple[str, ...]:
    names = (field.name for field in dataclasses.fields(kind))
    return tuple(
        name
        for name in names
        if name not in _FORMATTING and not name.startswith("whitespace")
    )


def matches(pattern: Any, node: Any, captures: Captures | None = None) -> bool:
    """True if `node` has the shape of `pattern`; record the captured expressions.

    Without `captures`, `...` stands for itself.
    """
    if captures is not None:
        if _is_anything(pattern):
            return True
        if isinstance(pattern, cst.Name) and is_capture(pattern.value):
            first = captures.setdefault(pattern.value, node)
            return isinstance(node, cst.CSTNode) and matches(first, node)
    match pattern, node:
        case cst.SimpleString(evaluated_value=one), cst.SimpleString(
            evaluated_value=other
        ):
            return one == other
        case cst.CSTNode(), cst.CSTNode():
            kind = type(pattern)
            return kind is type(node) and all(
                matches(getattr(pattern, name), getattr(node, name), captures)
                for name in compared_fields(kind)
                if not (
                    captures is not None
                    and name == "orelse"
                    and getattr(pattern, name) is None
                )
            )
        case [*ones], [*others]:
            if captures is not None and len(ones) == 1 and _is_anything(ones[0]):
                return True
            return len(ones) == len(others) and all(
                matches(one, other, captures)
                for one, other in zip(ones, others, strict=True)
            )
    return bool(pattern == node)


def _is_anything(pattern: object) -> bool:
    """True if it is `...`: an expression, an argument, or a whole suite."""
    match pattern:
        case cst.Ellipsis():
            return True
        case cst.Arg(value=value) | cst.Expr(value=value):
            return isinstance(value, cst.Ellipsis)
        case cst.SimpleStatementSuite(body=[only]):
            return _is_anything(only)
    return False


def find(definition: cst.CSTNode, pattern: cst.CSTNode) -> list[tuple[Path, Captures]]:
    """Return every statement of a shape in a definition, in source order."""
    found: list[tuple[Path, Captures]] = []
    for path, node in walk(definition, lambda kind: _BLOCKS):
        captures: Captures = {}
        in_block = isinstance(node, cst.BaseStatement) and path[-1][1] is not None
        if in_block and matches(pattern, node, captures):
            found.append((path, captures))
    return found


_BLOCKS = ("body", "handlers", "orelse", "finalbody", "cases")


def walk(
    node: cst.CSTNode, fields: Callable[[type[cst.CSTNode]], Iterable[str]]
) -> Iterator[tuple[Path, cst.CSTNode]]:
    """Yield everything below a node, following the fields in `fields` for its class."""
    pending: list[tuple[Path, cst.CSTNode]] = [((), node)]
    while pending:
        path, node = pending.pop()
        if path:
            yield path, node
        children: list[tuple[Path, cst.CSTNode]] = []
        for name in fields(type(node)):
            value = getattr(node, name, None)
            if isinstance(value, list | tuple):
                children += [
                    ((*path, (name, index)), child) for index, child in enumerate(value)
                ]
            elif isinstance(value, cst.CSTNode):
                children.append(((*path, (name, None)), value))
        pending += reversed(children)
