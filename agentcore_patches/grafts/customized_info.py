"""A custom sampler's values, from `scheduler_output_processor_mixin.py` to the answer."""

from __future__ import annotations

from typing import Any, Dict, List, Optional


def _set_customized_info(values: List[Any], value: Any, n_tokens: int) -> None:
    """Keep a custom sampler's value for the newest token of a request.

    Args:
        values: one for each token so far; None for those that the sampler gave none.
        value: the sampler's.
        n_tokens: how many tokens the request has, the newest included.
    """
    values.extend([None] * (n_tokens - 1 - len(values)))
    values.append(value)


def _send_customized_info(
    column: List[Optional[List[Any]]],
    values: List[Any],
    n_before: int,
    start: int,
    end: int,
) -> None:
    """Add to a batch's column the values for the tokens `start` to `end` of a request.

    Args:
        column: the values of each request of the batch under one key, so far.
        values: those of this request.
        n_before: how many requests of the batch come before this one; None stands for
            each of them that has no such key.
        start: the first token that is sent.
        end: the token after the last that is sent.
    """
    column.extend([None] * (n_before - len(column)))
    new = values[start:end]
    column.append(new + [None] * (end - start - len(new)))


def _add_customized_info(
    state: Any,
    meta_info: Dict[str, Any],
    key: str,
    values: Optional[List[Any]],
    stream_output: bool,
    live: bool = False,
) -> None:
    """Put a custom sampler's values in `meta_info`, in step with the chunk's IDs.

    Args:
        state: the request's; keeps the values that a cumulative chunk repeats. Its
            `output_ids` are those before this chunk.
        meta_info: of the chunk.
        key: the sampler's name for the values.
        values: the new ones, one for each new token; None if the request has none.
        stream_output: whether the chunks of a stream hold only the new tokens.
        live: whether the IDs of a cumulative chunk are the list that goes on growing.
    """
    if values is None:
        return
    kept: List[Any] = state.customized_info.setdefault(key, [])
    if stream_output and state.obj.stream:
        meta_info[key] = values
        return
    kept.extend([None] * (len(state.output_ids) - len(kept)))
    kept.extend(values)
    meta_info[key] = kept if live else kept.copy()
