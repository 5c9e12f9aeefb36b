"""How what a shape captured is put into new code: as nodes, never as text."""

from __future__ import annotations

from collections.abc import Mapping

import libcst as cst

from agentcore_patches.edits.cst_tools import code_of, parenthesized, replace
from agentcore_patches.edits.matching import (
    Misplaced,
    Path,
    expression_fields,
    matches,
    walk,
)


def substitute(module: cst.Module, captures: Mapping[str, cst.CSTNode]) -> cst.Module:
    """New code with each captured name replaced by the expression it stands for.

    An expression gets parentheses where it would mean something else without them.

    Raises:
        Misplaced: an expression cannot stand in a place of its name.
    """
    places = [
        (path, node)
        for path, node in walk(module, expression_fields)
        if isinstance(node, cst.Name) and node.value in captures
    ]
    for path, name in places:
        expression = captures[name.value]
        for quote in _f_string_quotes(module, path):
            expression = _fit_f_string(expression, name.value, quote)
        module = _put(module, path, name, expression)
    return module


def _put(
    module: cst.Module, path: Path, name: cst.Name, expression: cst.CSTNode
) -> cst.Module:
    """The module with the name at `path` replaced."""
    candidates = [expression]
    if not getattr(expression, "lpar", ()):
        with_own = expression.with_changes(lpar=name.lpar, rpar=name.rpar)
        candidates = (
            [with_own] if name.lpar else [expression, parenthesized(expression)]
        )
    for candidate in candidates:
        try:
            changed = replace(module, path, candidate)
        except cst.CSTValidationError:
            continue
        if _is_read_as_built(changed):
            return changed
    raise Misplaced(
        f"`{name.value}` stands for `{code_of(expression)}`, which the new code cannot "
        "take in its place"
    )


def _is_read_as_built(module: cst.Module) -> bool:
    """Whether the text of a tree, parsed, is that tree again."""
    try:
        again = cst.parse_module(module.code)
    except cst.ParserSyntaxError:
        return False
    return matches(module.body, again.body)


def _f_string_quotes(module: cst.Module, path: Path) -> list[str]:
    """The quotes of the f-strings around a place."""
    quotes: list[str] = []
    node: cst.CSTNode = module
    for name, index in path:
        value = getattr(node, name)
        node = value if index is None else value[index]
        if isinstance(node, cst.FormattedString):
            quotes.append(node.quote)
    return quotes


def _fit_f_string(expression: cst.CSTNode, name: str, quote: str) -> cst.CSTNode:
    """The expression as an f-string may hold it before Python 3.12."""
    if quote in code_of(expression):
        expression = expression.visit(_OtherQuotes(quote))  # type: ignore[assignment]
    code = code_of(expression)
    if any(part in code for part in (quote, "\\", "\n", "#")):
        raise Misplaced(
            f"`{name}` stands for `{code}`, which an f-string cannot hold before "
            "Python 3.12"
        )
    return expression


class _OtherQuotes(cst.CSTTransformer):
    """Writes strings that have one kind of quotes with the other."""

    def __init__(self, quote: str) -> None:
        super().__init__()
        self._quote = quote
        self._other = {'"': "'", "'": '"'}.get(quote, quote)

    def leave_SimpleString(
        self, original_node: cst.SimpleString, updated_node: cst.SimpleString
    ) -> cst.SimpleString:
        raw = updated_node.raw_value
        if updated_node.quote != self._quote or self._other in raw:
            return updated_node
        text = f"{updated_node.prefix}{self._other}{raw}{self._other}"
        return updated_node.with_changes(value=text)
