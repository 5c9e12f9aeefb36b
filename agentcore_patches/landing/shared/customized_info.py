"""Keep a custom sampler's values in step with token IDs, from scheduler to response."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

from .. import release

if TYPE_CHECKING:
    from sglang.srt.managers.tokenizer_manager import ReqState, TokenizerManager


def pad(values: list[Any], n_tokens: int) -> None:
    """Pad a list of per-token values with None, to a length of `n_tokens`."""
    values.extend([None] * (n_tokens - len(values)))


def add_to_column(
    column: list[list[Any] | None],
    values: list[Any] | None,
    n_before: int,
    start: int,
    end: int,
) -> None:
    """Add the values of a request's tokens `start` to `end` to its batch's column.

    Args:
        column: the values sent under one key, one item for each request so far.
        values: the request's, of which those from `start` to before `end` are sent.
        n_before: number of requests in the batch before this one. Requests that the
            column lacks do not have the key, and get None.
    """
    column.extend([None] * (n_before - len(column)))
    new = (values or [])[start:end]
    pad(new, end - start)
    column.append(new)


def cut_to_request(column_of: dict[str, list[Any]], index: int) -> dict[str, list[Any]]:
    """Cut the column of each key down to the request at `index`."""
    return {
        key: [column[index] if index < len(column) else None]
        for key, column in column_of.items()
    }


def add_to_output(
    manager: TokenizerManager,
    state: ReqState,
    meta_info: dict[str, Any],
    key: str,
    column: list[list[Any] | None],
    index: int,
) -> None:
    """Put the values of a request under one key in the `meta_info` of its next chunk.

    Args:
        state: the request's state; `output_ids` does not include this chunk yet.
        column: the new values of each request in the batch. An item is None or missing
            if the request has no values.
    """
    values = column[index] if index < len(column) else None
    if values is None:
        return
    kept: list[Any] = state.customized_info_accumulated.setdefault(key, [])
    if state.obj.stream and attrgetter(release.STREAM_OUTPUT)(manager):
        meta_info[key] = values
        return
    pad(kept, len(state.output_ids))
    kept.extend(values)
    meta_info[key] = kept if release.OUTPUT_IDS_GROW else kept.copy()
