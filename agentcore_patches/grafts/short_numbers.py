"""Lands in `entrypoints/openai/serving_base.py`, for the patch `fast-answers`."""

from __future__ import annotations

from typing import TYPE_CHECKING, List

if TYPE_CHECKING:
    import orjson


def _dump_numbers(values: List[float]) -> List[bytes]:
    """The JSON of each number, as pydantic writes it: 1e-7, and null for NaN.

    Raises:
        ValueError: one is no float.
    """
    if set(map(type, values)) - {float}:
        raise ValueError("a number is no float")
    numbers: bytes = orjson.dumps(values)
    return numbers[1:-1].split(b",")
