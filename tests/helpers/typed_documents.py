"""Compares a JSON document with the TypedDict that describes it."""

from __future__ import annotations

import types
from typing import (
    Any,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)


def mismatches(value: object, expected: Any, path: str = "document") -> list[str]:
    """Where a JSON value is not of the expected type; empty if it is.

    `expected` may be a TypedDict (exactly its keys), `list[X]`, `dict[str, X]`, a union,
    a Literal, None, or a plain type. A float may be written as an integer.
    """
    if is_typeddict(expected):
        return _object_mismatches(value, expected, path)
    origin, args = get_origin(expected), get_args(expected)
    if origin in (Union, types.UnionType):
        options = [mismatches(value, option, path) for option in args]
        return min(options, key=len)
    if origin is Literal:
        return [] if value in args else [f"{path}: {value!r} is none of {args}"]
    if origin is list and isinstance(value, list):
        return [
            found
            for index, item in enumerate(value)
            for found in mismatches(item, args[0], f"{path}[{index}]")
        ]
    if origin is dict and isinstance(value, dict):
        return [
            found
            for key, item in value.items()
            for found in mismatches(item, args[1], f"{path}.{key}")
        ]
    plain: Any = {None: type(None), float: (float, int)}.get(
        expected, origin or expected
    )
    is_wrong_bool = isinstance(value, bool) and expected is not bool
    if is_wrong_bool or not isinstance(value, plain):
        return [f"{path}: {value!r} is not {expected}"]
    return []


def _object_mismatches(value: object, expected: Any, path: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{path}: {value!r} is not an object"]
    hints = get_type_hints(expected)
    found = [
        f"{path}: {key} is missing" for key in expected.__required_keys__ - set(value)
    ]
    for key, item in value.items():
        if key not in hints:
            found.append(f"{path}: {key} is not described")
        else:
            found += mismatches(item, hints[key], f"{path}.{key}")
    return found
