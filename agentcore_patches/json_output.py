"""What scripts see: one JSON document for each command, made from its result.

A result becomes an object: a key for each attribute and property of its class in
`results`, which say what it means. Keys are only ever added.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentcore_patches.cluster.results import NodeResult
    from agentcore_patches.failure import Failure
    from agentcore_patches.results import (
        ApplyResult,
        EditList,
        PatchList,
        RevertResult,
        StatusResult,
    )

_KEYS = {"install": "sglang", "package": "path"}
"""The keys that are not named as their attributes."""

_LEFT_OUT = {"dist_info"}


def as_json(value: object) -> Any:
    """A value as `json.dumps` takes it."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): as_json(entry) for key, entry in value.items()}
    if isinstance(value, tuple | list):
        return [as_json(entry) for entry in value]
    if is_dataclass(value):
        return {
            _KEYS.get(name, name): as_json(getattr(value, name))
            for name in _attributes(type(value))
            if name not in _LEFT_OUT
        }
    return value


def _attributes(dataclass: type[Any]) -> list[str]:
    """The names of a dataclass's fields and properties."""
    properties = [
        name for name, value in vars(dataclass).items() if isinstance(value, property)
    ]
    return [field.name for field in fields(dataclass)] + properties


class JsonOutput:
    """One document for each thing that a command may have to tell."""

    def applied(self, result: ApplyResult) -> str:
        return _dump(result)

    def status(self, result: StatusResult) -> str:
        return _dump(result)

    def reverted(self, result: RevertResult) -> str:
        return _dump(result)

    def patches(self, result: PatchList) -> str:
        return _dump(result)

    def edits(self, result: EditList) -> str:
        return _dump(result)

    def applied_on_ray(self, results: Sequence[NodeResult]) -> str:
        return _dump(_on_ray(results))

    def status_on_ray(self, results: Sequence[NodeResult]) -> str:
        return _dump(_on_ray(results))

    def failure(self, failure: Failure) -> str:
        return _dump({"error": failure})


def _on_ray(results: Sequence[NodeResult]) -> dict[str, object]:
    return {
        "complete": all(result.complete for result in results),
        "changed": any(result.changed for result in results),
        "nodes": [_node(result) for result in results],
    }


def _node(result: NodeResult) -> dict[str, object]:
    """A node's own keys, beside those of what was found there."""
    found = as_json(result)
    return {**found.pop("node"), **found}


def _dump(result: object) -> str:
    return json.dumps(as_json(result), indent=2)
