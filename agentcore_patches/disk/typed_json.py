"""Dataclasses made of JSON, with the type of every value checked."""

from __future__ import annotations

import json
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

_T = TypeVar("_T")

_type_hints = cache(get_type_hints)


def parse(text: bytes) -> Any:
    """Parse JSON; raise ValueError if it is not JSON, or nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def typed(kind: type[_T], value: object) -> _T:
    """Make a value of a type from JSON, or raise ValueError. Ignore unknown keys."""
    made: _T = _typed(kind, value)
    return made


def _typed(kind: Any, value: Any) -> Any:
    origin, arguments = get_origin(kind) or kind, get_args(kind)
    if origin in (types.UnionType, Union):
        if value is None and type(None) in arguments:
            return None
        (kind,) = (kind for kind in arguments if kind is not type(None))
        return _typed(kind, value)
    if origin is Literal:
        if isinstance(value, str) and value in arguments:
            return value
    elif origin is tuple:
        if isinstance(value, list):
            return tuple(_typed(arguments[0], item) for item in value)
    elif issubclass(origin, Mapping):
        if isinstance(value, dict):
            return {name: _typed(arguments[1], item) for name, item in value.items()}
    elif is_dataclass(origin):
        if isinstance(value, dict):
            return _dataclass(origin, value)
    elif issubclass(origin, Enum):
        return origin(value)
    elif issubclass(origin, Path):
        if isinstance(value, str):
            return Path(value)
    elif type(value) is origin:
        return value
    raise ValueError(f"a value has another type than {kind}")


def _dataclass(kind: Any, value: Mapping[str, Any]) -> Any:
    hints = _type_hints(kind)
    try:
        given = {
            field.name: _typed(hints[field.name], value[field.name])
            for field in fields(kind)
        }
    except KeyError as error:
        raise ValueError(f"{error} is missing") from None
    return kind(**given)
