"""Lands in `managers/tokenizer_manager.py`, for the patch `customized-info`."""

from __future__ import annotations

from typing import Any, List


def _add_customized_info(
    state: Any, key: str, values: List[Any], incremental: bool
) -> List[Any]:
    """A custom sampler's values for the tokens of the next chunk, in step with its IDs.

    Args:
        state: the request's; keeps the values that a cumulative chunk repeats.
        key: the sampler's name for them.
        values: the new ones, one for each new token.
        incremental: whether a chunk holds only the new tokens (--stream-output).
    """
    kept: List[Any] = state.customized_info.setdefault(key, [])
    if incremental:
        return values
    kept.extend(values)
    return kept.copy()
