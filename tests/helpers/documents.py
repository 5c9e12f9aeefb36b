"""Compare a JSON document with the type that describes it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import NoneType, UnionType
from typing import (
    Any,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)


def mismatches(value: Any, described: Any, path: str = "document") -> list[str]:
    """Find the differences between a JSON value and a TypedDict or a type used in one.

    A missing key and a key that the type does not have are differences, too.
    """
    origin, arguments = get_origin(described), get_args(described)
    if is_typeddict(described):
        hints = get_type_hints(described)
        if not isinstance(value, dict) or value.keys() != hints.keys():
            keys = sorted(value) if isinstance(value, dict) else value
            return [f"{path}: {keys}, described as {sorted(hints)}"]
        return [
            found
            for key, hint in hints.items()
            for found in mismatches(value[key], hint, f"{path}.{key}")
        ]
    if origin is list and isinstance(value, list):
        return [
            found
            for index, item in enumerate(value)
            for found in mismatches(item, arguments[0], f"{path}[{index}]")
        ]
    if origin in (dict, Mapping) and isinstance(value, dict):
        return [
            found
            for key, item in value.items()
            for found in mismatches(item, arguments[1], f"{path}.{key}")
        ]
    if origin in (Union, UnionType):
        tried = [mismatches(value, argument, path) for argument in arguments]
        return [] if [] in tried else [found for each in tried for found in each]
    if _fits(value, described):
        return []
    return [f"{path}: {value!r}, described as {described}"]


def _fits(value: Any, described: Any) -> bool:
    if get_origin(described) is Literal:
        return value in get_args(described)
    if described in (None, NoneType):
        return value is None
    if isinstance(described, type) and issubclass(described, Enum):
        return value in [member.value for member in described]
    # As in JSON, true is not a number.
    return isinstance(described, type) and type(value) is described
