"""Put captured expressions into new code: as nodes, never as text."""

from __future__ import annotations

from collections.abc import Mapping

import libcst as cst

from agentcore_patches.edits.cst_tools import (
    code_of,
    parenthesized,
    replace,
)
from agentcore_patches.edits.matching import (
    CannotPlace,
    Path,
    compared_fields,
    matches,
    spelled,
    walk,
)


def substitute(module: cst.Module, captures: Mapping[str, cst.CSTNode]) -> cst.Module:
    """Replace each capture in new code by the expression that it matched.

    An expression gets parentheses if the code would change its meaning without them.

    Raises:
        CannotPlace: Python does not allow an expression in the place of its name.
    """
    places = [
        (path, node)
        for path, node in walk(module, compared_fields)
        if isinstance(node, cst.Name) and node.value in captures
    ]
    for path, name in places:
        module = _put(module, path, name, captures[name.value])
    return module


def _put(
    module: cst.Module, path: Path, name: cst.Name, expression: cst.CSTNode
) -> cst.Module:
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
    raise CannotPlace(
        f"`{spelled(name.value)}` stands for `{code_of(expression)}`, which the new code "
        "cannot take in its place"
    )


def _is_read_as_built(module: cst.Module) -> bool:
    """True if printing and parsing the tree gives the same tree."""
    try:
        again = cst.parse_module(module.code)
    except cst.ParserSyntaxError:
        return False
    return matches(module.body, again.body)
