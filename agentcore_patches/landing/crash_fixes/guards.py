"""The guards, as hooks in SGLang call them."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite
from typing import TYPE_CHECKING, Any

from .. import release
from ..http import request_fields

if TYPE_CHECKING:
    from sglang.srt.managers.io_struct import (
        ReleaseMemoryOccupationReqOutput,
        ResumeMemoryOccupationReqOutput,
    )
    from sglang.srt.managers.tokenizer_manager import TokenizerManager

    from ..http.request_fields import EngineRequest


def refuse(manager: TokenizerManager, obj: EngineRequest) -> None:
    """Reject a request that would crash the engine, and name the field."""
    all_params = request_fields.all_sampling_params(obj)
    for params in all_params:
        _refuse_sampling(manager, params)
    vocab_size = manager.model_config.vocab_size
    for value in request_fields.each(obj, "top_logprobs_num"):
        if value > vocab_size:
            raise ValueError(f"top_logprobs_num must be from 0 to {vocab_size}.")
    # Routers send a room per sample, but SGLang has one for each prompt.
    rooms = request_fields.read(obj, "bootstrap_room")
    if isinstance(rooms, list) and any(map(request_fields.has_samples, all_params)):
        raise ValueError(
            "n above 1 is not supported with prefill and decoding on separate servers: "
            "bootstrap_room may have only one value per prompt."
        )
    _refuse_processor(manager, obj)


def _refuse_sampling(manager: TokenizerManager, params: dict[str, Any]) -> None:
    temperature = params.get("temperature")
    if isinstance(temperature, float) and not isfinite(temperature):
        raise ValueError("temperature must be a finite number.")
    if params.get("repetition_penalty") == 0:
        raise ValueError("repetition_penalty must be above 0.")
    if (
        params.get("min_new_tokens")
        and release.MIN_TOKENS_NEED_EOS
        and not manager.server_args.skip_tokenizer_init
        and manager.tokenizer.eos_token_id is None
    ):
        raise ValueError("min_new_tokens needs an EOS token: the tokenizer names none.")


def _refuse_processor(manager: TokenizerManager, obj: EngineRequest) -> None:
    """Reject a logit processor that cannot be loaded.

    The scheduler loads it in the middle of a batch. Without
    --enable-custom-logit-processor, SGLang rejects the request itself.
    """
    given = request_fields.each(obj, "custom_logit_processor")
    if not given or not manager.server_args.enable_custom_logit_processor:
        return
    from sglang.srt.sampling.custom_logit_processor import CustomLogitProcessor

    for text in given:
        try:
            CustomLogitProcessor.from_str(text)
        except Exception as error:
            name = type(error).__name__
            raise ValueError(
                f"custom_logit_processor cannot be loaded: {name}: {error}."
            ) from error


def raise_refusal(
    answers: Iterable[
        ReleaseMemoryOccupationReqOutput | ResumeMemoryOccupationReqOutput
    ],
) -> None:
    """Turn a scheduler's refusal to release or resume memory into a 400."""
    for answer in answers:
        if answer.refusal is not None:
            raise ValueError(answer.refusal)
