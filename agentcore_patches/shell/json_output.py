"""Output for scripts: one JSON document for each command, made from its result.

A result becomes an object: a key for each attribute and property of its class, whose
docstring describes them. Keys are only ever added.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentcore_patches.cluster.results import NodeResult

KEYS = {"install": "sglang", "package": "path"}
"""The keys that differ from the names of their attributes."""

LEFT_OUT = {"dist_info"}


def as_json(value: object) -> Any:
    """Convert a value for `json.dumps`."""
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
            KEYS.get(name, name): as_json(getattr(value, name))
            for name in _attributes(type(value))
            if name not in LEFT_OUT
        }
    return value


def _attributes(dataclass: type[Any]) -> list[str]:
    """The names of a dataclass's fields and properties."""
    properties = [
        name for name, value in vars(dataclass).items() if isinstance(value, property)
    ]
    return [field.name for field in fields(dataclass)] + properties


def document(result: object) -> str:
    """Return the one JSON document of a command, from its result.

    The results of all nodes of a Ray cluster are one document, too.
    """
    if isinstance(result, tuple):
        from agentcore_patches.cluster.results import are_complete

        result = {
            "complete": are_complete(result),
            "changed": any(node.changed for node in result),
            "nodes": [_node(node) for node in result],
        }
    return json.dumps(as_json(result), indent=2)


def _node(result: NodeResult) -> dict[str, object]:
    """Put a node's own keys beside those of its result."""
    found = as_json(result)
    return {**found.pop("node"), **found}
