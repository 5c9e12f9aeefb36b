"""Lands in `TokenizerManager` and `OpenAIServingBase`, for the patch `token-ids`."""

from __future__ import annotations

from typing import Any, Dict, List, Optional


def check_logprobs_support(self, sampling_params: Any = None) -> Optional[str]:
    """Why this server gives no logprobs, None if it does.

    Args:
        sampling_params: those of a request, or of each one of a batch, if logprobs
            of the first new token are enough.
    """
    error: Optional[str] = self.check_logprobs_of_diffusion()
    if error is not None:
        return error
    if (
        self.server_args.speculative_algorithm is not None
        and not self.server_args.disable_overlap_schedule
    ):
        batch = sampling_params
        if not isinstance(batch, list):
            batch = [sampling_params]
        if all(one and one.get("max_new_tokens") in (0, 1) for one in batch):
            return None
        return (
            "logprobs are not supported by this server: speculative decoding with "
            "the overlap scheduler records none after the first token. Start it "
            "with --disable-overlap-schedule, and without SGLANG_ENABLE_SPEC_V2."
        )
    return None


def check_logprobs_of_diffusion(self) -> Optional[str]:
    """Why this server gives no logprobs, None if it does."""
    if self.server_args.dllm_algorithm is not None:
        return (
            "logprobs are not supported by this server: diffusion language models "
            "(--dllm-algorithm) record none."
        )
    return None


def _cut_logprobs(self, ret: List[Dict[str, Any]]) -> None:
    """Cut off the engine's logprobs of tokens after a stop, which no answer has.

    Raises:
        ValueError: the engine gave fewer logprobs than tokens.
    """
    for i, ret_item in enumerate(ret):
        meta_info = ret_item["meta_info"]
        n_tokens = len(ret_item["output_ids"])
        n_logprobs = len(meta_info.get("output_token_logprobs") or ())
        if n_logprobs < n_tokens:
            raise ValueError(
                f"The engine gave {n_logprobs} logprobs for {n_tokens} tokens: "
                "logprobs are not supported by the way in which this server "
                "generates."
            )
        if n_logprobs > n_tokens:
            logprobs = {
                key: meta_info[key][:n_tokens]
                for key in ("output_token_logprobs", "output_top_logprobs")
                if meta_info.get(key) is not None
            }
            ret[i] = {**ret_item, "meta_info": {**meta_info, **logprobs}}
