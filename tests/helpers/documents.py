"""Compare JSON documents with the classes of their results, and find their parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict, is_typeddict

from agentcore_patches.cluster.results import NodeResult, RayNode
from agentcore_patches.shell.exit_codes import Failure
from agentcore_patches.shell.json_output import KEYS, LEFT_OUT
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


def mismatches(value: Any, described: Any) -> list[str]:
    """Find the differences between a JSON value and a class or a type used in one.

    A missing key and a key that the type does not have are differences, too.
    """
    try:
        TypeAdapter(_in_json(described)).validate_python(value)
    except ValidationError as error:
        return [f"{one['loc']}: {one['msg']}" for one in error.errors()]
    return []


def _in_json(described: Any) -> Any:
    """Return the type of a value in JSON."""
    origin, inside = get_origin(described), get_args(described)
    if is_typeddict(described) or is_dataclass(described):
        types = {key: _in_json(hint) for key, hint in keys(described).items()}
        made = TypedDict(described.__name__, types)  # type: ignore[misc]
        return with_config(ConfigDict(extra="forbid", strict=True))(made)
    if origin in (list, tuple):
        return list[_in_json(inside[0])]  # type: ignore[misc]
    if origin in (dict, Mapping):
        return dict[str, _in_json(inside[1])]  # type: ignore[misc]
    if origin in (Union, UnionType):
        return Union[tuple(map(_in_json, inside))]  # noqa: UP007
    if isinstance(described, type) and issubclass(described, Enum):
        return Literal[tuple(member.value for member in described)]
    return str if described is Path else described


def places_in(value: Any, longest: int | None = None) -> list[tuple[Any, Any]]:
    """Return each container in a JSON value with each of its keys.

    Only the first `longest` entries of a list count.
    """
    keys: list[Any] = [*value] if isinstance(value, dict) else []
    if isinstance(value, list):
        keys = [*range(len(value))][:longest]
    inside = [place for key in keys for place in places_in(value[key], longest)]
    return [(value, key) for key in keys] + inside
