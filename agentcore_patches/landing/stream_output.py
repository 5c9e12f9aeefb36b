"""Chunks that queue up under --stream-output, each of which holds only what is new."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sglang.srt.managers.tokenizer_manager import ReqState


def merge_queued(state: ReqState) -> dict[str, Any]:
    """One chunk for all that were queued before their consumer woke.

    The token IDs and a custom sampler's values are joined. All else is cumulative: the
    last chunk has all of it.
    """
    chunks: list[dict[str, Any]] = state.out_list
    if len(chunks) == 1:
        return chunks[0]
    output_ids = [id for chunk in chunks for id in chunk["output_ids"]]
    merged = {**chunks[-1], "output_ids": output_ids}
    join_customized_info(merged, chunks, state)
    return merged


def join_customized_info(
    out: dict[str, Any], chunks: list[dict[str, Any]], state: ReqState
) -> None:
    """Put the values of a custom sampler for all queued chunks in their merged chunk.

    Args:
        out: the merged chunk, in which all else is joined already; the only chunk if
            there is one.
        chunks: those that were queued.
        state: of their request.
    """
    if len(chunks) == 1:
        return
    joined = {
        # Each token ID has a value, None where its chunk has none.
        key: [
            value
            for chunk in chunks
            for value in chunk["meta_info"].get(key, [None] * len(chunk["output_ids"]))
        ]
        for key in state.customized_info_accumulated
    }
    out["meta_info"] = {**out["meta_info"], **joined}
