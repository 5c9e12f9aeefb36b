"""Find places: compare a shape with the statements of a definition."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, TypeAlias

Captures: TypeAlias = dict[str, ast.expr]
Definition: TypeAlias = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
Block: TypeAlias = list[ast.stmt]

DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


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


def spelled(code: str) -> str:
    """Return code as its author wrote it: the reverse of `capture_names`."""
    return code.replace(_CAPTURE, "$")


def captures_of(tree: ast.AST) -> list[ast.Name]:
    """Return the captures in code; before Python 3.12 an f-string cannot hold any."""
    found: list[ast.Name] = []
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Name) and node.id.startswith(_CAPTURE):
            found.append(node)
        elif not isinstance(node, ast.JoinedStr):
            pending += ast.iter_child_nodes(node)
    return found


def captures_in(code: str) -> frozenset[str]:
    """Return the names of captures; raise InvalidEdit where none is allowed."""
    named = capture_names(code)
    names = [name.id for name in captures_of(ast.parse(named))]
    if len(names) < named.count(_CAPTURE):
        raise InvalidEdit(
            f"`{headline(code)}` has a capture where no expression can stand"
        )
    return frozenset(names)


def refuse_unbound_captures(new: str, shape: str) -> None:
    """Raise `InvalidEdit` if new code uses a capture that its shape lacks."""
    if unbound := sorted(captures_in(new) - captures_in(shape)):
        raise InvalidEdit(
            f"`{spelled(unbound[0])}` of the new code is not captured by a shape"
        )


@cache
def parse_shape(code: str) -> ast.stmt:
    """Parse code; raise InvalidEdit unless it is one statement."""
    try:
        body = ast.parse(capture_names(code)).body
    except SyntaxError as error:
        body, reason = [], error.msg
    else:
        reason = f"it is {len(body)}"
    if len(body) != 1:
        raise InvalidEdit(
            f"`{headline(code)}` cannot be parsed as one statement: {reason}"
        )
    return body[0]


_IGNORED = ("ctx", "kind", "simple", "type_comment")


def matches(pattern: Any, node: Any, captures: Captures | None = None) -> bool:
    """True if `node` has the shape of `pattern`; record the captured expressions.

    Without `captures`, `...` stands for itself.
    """
    if captures is not None:
        if _is_anything(pattern):
            return node is not None
        if isinstance(pattern, ast.Name) and pattern.id.startswith(_CAPTURE):
            if not isinstance(node, ast.expr) or isinstance(node, ast.Starred):
                return False
            return matches(captures.setdefault(pattern.id, node), node)
        match pattern, node:
            case [ast.Expr(value=only)], [*_] if _is_anything(only):
                return True
            case ast.Call(args=[only], keywords=[]), ast.Call() if _is_anything(only):
                return matches(pattern.func, node.func, captures)
    if isinstance(pattern, list):
        return len(pattern) == len(node) and all(
            matches(one, other, captures)
            for one, other in zip(pattern, node, strict=True)
        )
    if isinstance(pattern, ast.AST):
        return type(pattern) is type(node) and all(
            matches(value, getattr(node, name), captures)
            for name, value in ast.iter_fields(pattern)
            if name not in _IGNORED and (captures is None or name != "orelse" or value)
        )
    return type(pattern) is type(node) and bool(pattern == node)


def _is_anything(pattern: object) -> bool:
    return isinstance(pattern, ast.Constant) and pattern.value is ...


def find(node: ast.AST, shape: ast.stmt) -> Iterator[tuple[Block, int, Captures]]:
    """Yield every statement of a shape: its block, its index there, its captures."""
    for block in blocks(node):
        for index, statement in enumerate(block):
            captures: Captures = {}
            if matches(shape, statement, captures):
                yield block, index, captures
            yield from find(statement, shape)


def blocks(node: ast.AST) -> Iterator[Block]:
    """Yield the blocks of a node, without the blocks of their statements."""
    for name in ("body", "handlers", "orelse", "finalbody", "cases"):
        match getattr(node, name, None):
            case [ast.stmt(), *_] as block:
                yield block
            case [*parts]:
                for part in parts:
                    yield from blocks(part)
