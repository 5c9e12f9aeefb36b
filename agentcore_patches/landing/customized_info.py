"""A custom sampler's values, one for each token ID, from scheduler to answer."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

from . import release

if TYPE_CHECKING:
    from sglang.srt.managers.tokenizer_manager import ReqState, TokenizerManager


def pad(values: list[Any], n_tokens: int) -> None:
    """Fill a list of one value per token up to `n_tokens` of them with None."""
    values.extend([None] * (n_tokens - len(values)))


def send(
    column: list[list[Any] | None],
    values: list[Any] | None,
    n_before: int,
    start: int,
    end: int,
) -> None:
    """Add the values of a request's tokens `start` to `end` to its batch's column.

    Args:
        column: what is sent under one key, an item for each request so far.
        values: those of this request; None where it has none.
        n_before: how many requests of the batch come before this one; those that the
            column lacks have no such key, and get None.
        start: the first token that is sent.
        end: the token after the last that is sent.
    """
    column.extend([None] * (n_before - len(column)))
    new = (values or [])[start:end]
    pad(new, end - start)
    column.append(new)


def of_request(column_of: dict[str, list[Any]], index: int) -> dict[str, list[Any]]:
    """What a batch sends, by key, as a batch of the request at `index` alone."""
    return {
        key: [column[index] if index < len(column) else None]
        for key, column in column_of.items()
    }


def add(
    manager: TokenizerManager,
    state: ReqState,
    meta_info: dict[str, Any],
    key: str,
    column: list[list[Any] | None],
    index: int,
) -> None:
    """Put the values of a request under one key in the `meta_info` of its next chunk.

    Args:
        state: the request's; its `output_ids` are those before this chunk.
        meta_info: of the chunk.
        key: the sampler's name for the values.
        column: the new values of each request of a batch; None, or too short, where a
            request has none.
        index: of the request in the batch.
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
