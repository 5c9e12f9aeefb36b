"""Lands in `entrypoints/openai/serving_completions.py`, for the patch `token-ids`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict

if TYPE_CHECKING:
    from sglang.srt.entrypoints.openai.protocol import LogProbs
    from sglang.srt.entrypoints.openai.utils import to_openai_style_logprobs


def _completion_logprobs(
    ret_item: Dict[str, Any], echo: bool, **options: Any
) -> LogProbs:
    """The logprobs of a choice; with `echo`, those of its prompt before them."""
    meta_info = ret_item["meta_info"]
    return to_openai_style_logprobs(
        input_token_logprobs=meta_info.get("input_token_logprobs") if echo else None,
        input_top_logprobs=meta_info.get("input_top_logprobs") if echo else None,
        output_token_logprobs=meta_info["output_token_logprobs"],
        output_top_logprobs=meta_info.get("output_top_logprobs"),
        **options,
    )
