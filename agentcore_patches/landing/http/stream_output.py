"""Merge the chunks that queue up under --stream-output; each holds only new values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sglang.srt.managers.tokenizer_manager import ReqState


def merge_queued(state: ReqState) -> dict[str, Any]:
    """Merge all chunks that were queued before their reader woke up.

    Token IDs and a custom sampler's values are joined. Everything else is cumulative:
    the last chunk has all of it.
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
    """Join a custom sampler's values of all queued chunks in the merged chunk.

    Args:
        out: the merged chunk, with everything else already joined. A single chunk is
            its own merged chunk.
    """
    if len(chunks) == 1:
        return
    joined = {
        # A chunk without values counts as None for each of its token IDs.
        key: [
            value
            for chunk in chunks
            for value in chunk["meta_info"].get(key, [None] * len(chunk["output_ids"]))
        ]
        for key in state.customized_info_accumulated
    }
    out["meta_info"] = {**out["meta_info"], **joined}
