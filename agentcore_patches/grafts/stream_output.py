"""Lands in `managers/tokenizer_manager.py`, for `token-ids` and `customized-info`."""

from __future__ import annotations

from typing import Any, Dict, List


def _merge_queued_chunks(
    out_list: List[Dict[str, Any]], customized_info: Dict[str, List[Any]]
) -> Dict[str, Any]:
    """One chunk for all that were queued before their consumer woke (--stream-output).

    What each chunk holds only its own part of is joined: `output_ids`, and the keys of
    `customized_info` in `meta_info`. All else is cumulative: the last chunk has all.
    """
    last = out_list[-1]
    if len(out_list) == 1:
        return last
    merged = {**last, "output_ids": [i for out in out_list for i in out["output_ids"]]}
    merged["meta_info"] = meta_info = dict(last["meta_info"])
    for key in customized_info:
        meta_info[key] = [
            value
            for out in out_list
            for value in out["meta_info"].get(key, [None] * len(out["output_ids"]))
        ]
    return merged


def _join_customized_info(
    out: Dict[str, Any],
    out_list: List[Dict[str, Any]],
    customized_info: Dict[str, List[Any]],
) -> None:
    """Put in a chunk merged of queued ones the per-token metadata of all of them.

    Args:
        out: the merged chunk, of which all else is joined already.
        out_list: the chunks that were queued.
        customized_info: has the keys that a custom sampler gave.
    """
    out["meta_info"] = meta_info = dict(out["meta_info"])
    for key in customized_info:
        meta_info[key] = [
            value
            for one in out_list
            for value in one["meta_info"].get(key, [None] * len(one["output_ids"]))
        ]
