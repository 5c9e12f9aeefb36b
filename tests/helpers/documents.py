"""Compare a JSON document with the class of the result that it was made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Any,
    Literal,
    TypedDict,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from agentcore_patches.cluster.results import NodeResult, RayNode
from agentcore_patches.command.exit_codes import Failure
from agentcore_patches.command.json_output import KEYS, LEFT_OUT
from agentcore_verify.results import Report


class Nodes(TypedDict):
    """`apply --ray --json` and `status --ray --json`"""

    complete: bool
    changed: bool
    nodes: list[NodeResult]


class Error(TypedDict):
    """Any command that fails, `verify` included."""

    error: Failure


def keys(described: Any) -> dict[str, Any]:
    """Return the keys of a class's JSON object, with the types of their values."""
    types = get_type_hints(described)
    for name, value in vars(described).items():
        if isinstance(value, property):
            types[name] = get_type_hints(value.fget)["return"]
    if described is NodeResult:
        types = {**get_type_hints(RayNode), **types}
        del types["node"]
    if described is Report:
        types["checks"] = types.pop("results")
        types["error"] = Failure | None
        del types["hint"], types["unpatched"], types["failures"]
    return {KEYS.get(key, key): types[key] for key in types if key not in LEFT_OUT}


def mismatches(value: Any, described: Any, path: str = "document") -> list[str]:
    """Find the differences between a JSON value and a class or a type used in one.

    A missing key and a key that the type does not have are differences, too.
    """
    origin, arguments = get_origin(described), get_args(described)
    if is_typeddict(described) or is_dataclass(described):
        hints = keys(described)
        if not isinstance(value, dict) or value.keys() != hints.keys():
            found = sorted(value) if isinstance(value, dict) else value
            return [f"{path}: {found}, described as {sorted(hints)}"]
        return [
            mismatch
            for key, hint in hints.items()
            for mismatch in mismatches(value[key], hint, f"{path}.{key}")
        ]
    if origin in (list, tuple) and isinstance(value, list):
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
    if described is Path:
        return type(value) is str
    if isinstance(described, type) and issubclass(described, Enum):
        return value in [member.value for member in described]
    # As in JSON, true is not a number.
    return isinstance(described, type) and type(value) is described
