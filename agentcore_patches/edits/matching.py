"""How a place is found: a shape is compared with the statements of a definition."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, TypeAlias, TypeVar

import libcst as cst

Captures: TypeAlias = dict[str, cst.CSTNode]
Step: TypeAlias = tuple[str, int | None]
Path: TypeAlias = tuple[Step, ...]
SmallT = TypeVar("SmallT", bound=cst.BaseSmallStatement)


class Misplaced(Exception):
    """A definition does not have the place that an edit needs; says what was found."""


def count(places: Sequence[object]) -> str:
    return f"that place is {times('there', len(places))}"


def times(what: str, count: int) -> str:
    return f"{what} {count} times" if count else f"not {what}"


@cache
def parse_shape(code: str) -> cst.BaseStatement:
    statement = cst.parse_statement(code)
    assert isinstance(statement, cst.BaseStatement)
    return statement


def only_statement(statement: cst.CSTNode, kind: type[SmallT]) -> SmallT | None:
    """The small statement of a line that has just one, if it is of that kind."""
    match statement:
        case cst.SimpleStatementLine(body=[small]) if isinstance(small, kind):
            return small
    return None


def parse_small(code: str, kind: type[SmallT]) -> SmallT:
    small = only_statement(parse_shape(code), kind)
    assert small is not None
    return small


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
    """Whether `node` has the shape of `pattern`; fills in what capitals stand for.

    Without `captures`, `...` and capitals stand for themselves.
    """
    if captures is not None:
        if _is_anything(pattern):
            return True
        if isinstance(pattern, cst.Name) and pattern.value.isupper():
            first = captures.setdefault(pattern.value, node)
            return isinstance(node, cst.CSTNode) and matches(first, node)
    match pattern, node:
        case cst.SimpleString(evaluated_value=one), cst.SimpleString(
            evaluated_value=other
        ):
            return one == other
        case cst.CSTNode(), cst.CSTNode():
            return type(pattern) is type(node) and all(
                matches(getattr(pattern, name), getattr(node, name), captures)
                for name in compared_fields(type(pattern))
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
    """Whether it is `...`: an expression, an argument, or a whole suite."""
    match pattern:
        case cst.Ellipsis():
            return True
        case cst.Arg(value=value) | cst.Expr(value=value):
            return isinstance(value, cst.Ellipsis)
        case cst.SimpleStatementSuite(body=[only]):
            return _is_anything(only)
    return False


def find(definition: cst.CSTNode, pattern: cst.CSTNode) -> list[tuple[Path, Captures]]:
    """Every statement of that shape in a definition, in the order of the source."""
    found: list[tuple[Path, Captures]] = []
    for path, node in walk(definition, lambda kind: _BLOCKS):
        captures: Captures = {}
        in_block = isinstance(node, cst.BaseStatement) and path[-1][1] is not None
        if in_block and matches(pattern, node, captures):
            found.append((path, captures))
    return found


_BLOCKS = ("body", "handlers", "orelse", "finalbody", "cases")


def walk(
    node: cst.CSTNode,
    fields: Callable[[type[cst.CSTNode]], Iterable[str]],
    path: Path = (),
) -> Iterator[tuple[Path, cst.CSTNode]]:
    """Everything below a node, by the fields that `fields` names of each kind."""
    for name in fields(type(node)):
        value = getattr(node, name, None)
        children: list[tuple[Step, cst.CSTNode]] = []
        if isinstance(value, cst.CSTNode):
            children = [((name, None), value)]
        elif isinstance(value, list | tuple):
            children = [((name, index), child) for index, child in enumerate(value)]
        for step, child in children:
            here = (*path, step)
            yield here, child
            yield from walk(child, fields, here)
