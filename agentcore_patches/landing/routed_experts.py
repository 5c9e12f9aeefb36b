"""Which experts a mixture-of-experts model routed each token to, for each choice.

The engine gives them once, when a request is finished, as base64 of int32: a row for
each token but the last, from the start that was asked for.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from . import release

if TYPE_CHECKING:
    import numpy as np
    from sglang.srt.entrypoints.openai.protocol import (
        ChatCompletionRequest,
        CompletionRequest,
    )
    from sglang.srt.entrypoints.openai.serving_base import OpenAIServingBase
    from sglang.srt.managers.io_struct import GenerateReqInput
    from sglang.srt.managers.tokenizer_manager import ReqState, TokenizerManager

# What configurations of models call the number of their experts.
_NUMBERS_OF_EXPERTS = (
    "num_experts",
    "n_routed_experts",
    "num_local_experts",
    "moe_num_experts",
)


class StartLen:
    """`routed_experts_start_len` of a request: an integer from 0; null means 0."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_before_validator_function(
            lambda value: 0 if value is None else value,
            core_schema.int_schema(strict=True, ge=0),
        )


def ask(
    serving: OpenAIServingBase,
    request: ChatCompletionRequest | CompletionRequest,
    adapted_request: GenerateReqInput,
) -> None:
    """Ask the engine for what a request asks for.

    Raises:
        ValueError: the request cannot be answered.
    """
    # Up to 0.5.11 SGLang does not do so by itself.
    adapted_request.return_routed_experts = bool(request.return_routed_experts)
    adapted_request.routed_experts_start_len = request.routed_experts_start_len
    error = check(serving.tokenizer_manager, adapted_request)
    if error is not None:
        raise ValueError(error)


def check(manager: TokenizerManager, obj: GenerateReqInput) -> str | None:
    """What is wrong with the start that a request asks for, None if nothing is.

    A stream has sent its status before the engine could say so. How many tokens images
    and sessions come to is not known yet: there the engine decides.
    """
    # Requests for embeddings have no experts.
    start = getattr(obj, "routed_experts_start_len", 0)
    if start == 0 or not obj.return_routed_experts:
        return None
    if start < 0:
        return f"routed_experts_start_len is {start}, and must be 0 or more."
    if obj.contains_mm_input() or obj.session_params or obj.input_embeds is not None:
        return None
    prompts = obj.text if obj.input_ids is None else obj.input_ids
    if not prompts:
        return None
    if isinstance(prompts, str) or isinstance(prompts[0], int):
        prompts = [prompts]
    for prompt in prompts:
        if isinstance(prompt, str):
            # Without a tokenizer, text is refused by SGLang.
            if manager.tokenizer is None:
                return None
            prompt = manager.tokenizer.encode(prompt)
        if start > len(prompt):
            return (
                f"routed_experts_start_len is {start}, and the prompt has only "
                f"{len(prompt)} tokens."
            )
    return None


def take(manager: TokenizerManager, state: ReqState, meta_info: dict[str, Any]) -> None:
    """Have the experts of a request begin where it asked, and say so.

    Args:
        meta_info: of the request's next output.
    """
    obj = state.obj
    if not getattr(obj, "return_routed_experts", False):
        # It is there if another request of its batch asked.
        meta_info.pop("routed_experts", None)
        return
    encoded = meta_info.get("routed_experts")
    if encoded is None:
        return
    start = obj.routed_experts_start_len
    if start and not release.ROUTED_EXPERTS_HAVE_START:
        meta_info["routed_experts"] = _encode(_rows(manager, encoded)[start:].tobytes())
    meta_info["routed_experts_start_len"] = start


def is_wanted(request: ChatCompletionRequest | CompletionRequest) -> bool:
    """Whether each choice of a request has its experts.

    `return_token_ids: false` leaves the answer as SGLang makes it, unless the request
    names a format, which SGLang does not know.
    """
    return bool(request.return_routed_experts) and (
        request.return_token_ids is not False
        or request.routed_experts_format is not None
    )


def of_choice(
    serving: OpenAIServingBase,
    request: ChatCompletionRequest | CompletionRequest,
    meta_info: dict[str, Any],
) -> dict[str, Any]:
    """What a choice that is finished says of its experts; nothing if there are none.

    Raises:
        ValueError: they cannot be said in the format that was asked for.
    """
    encoded = meta_info.get("routed_experts")
    if encoded is None:
        return {}
    if request.routed_experts_format == "npy":
        encoded = to_npy(serving.tokenizer_manager, encoded)
    return {
        "routed_experts": encoded,
        "routed_experts_start_len": request.routed_experts_start_len,
    }


def add_to_choice(
    serving: OpenAIServingBase,
    choice: Any,
    request: ChatCompletionRequest | CompletionRequest,
    ret_item: dict[str, Any],
) -> None:
    """Give a choice of a whole answer its experts, if they were asked for."""
    if is_wanted(request):
        for name, value in of_choice(serving, request, ret_item["meta_info"]).items():
            setattr(choice, name, value)


def to_npy(manager: TokenizerManager, encoded: str) -> str:
    """The same experts as base64 of a `.npy` of the smallest unsigned type.

    Raises:
        ValueError: an expert has a negative number.
    """
    import numpy as np

    rows = _rows(manager, encoded)
    config = manager.model_config.hf_text_config
    numbers = (getattr(config, name, None) for name in _NUMBERS_OF_EXPERTS)
    known = next((number for number in numbers if isinstance(number, int)), 1)
    # Copies of experts, for balance, have numbers beyond those of the model.
    highest = max(known - 1, int(rows.view(np.uint32).max(initial=0)))
    if highest > np.iinfo(np.int32).max:
        raise ValueError(
            "The engine gave an expert with a negative number, which "
            'routed_experts_format "npy" cannot say. Leave it out.'
        )
    file = io.BytesIO()
    np.save(file, rows.astype(np.min_scalar_type(highest)))
    return _encode(file.getvalue())


def _rows(manager: TokenizerManager, encoded: str) -> np.ndarray[Any, Any]:
    """The engine's experts, by token, layer, and rank."""
    import numpy as np
    import pybase64

    config = manager.model_config.hf_text_config
    # Without `validate` it is ten times slower.
    flat = np.frombuffer(pybase64.b64decode(encoded, validate=True), dtype=np.int32)
    return flat.reshape(-1, config.num_hidden_layers, config.num_experts_per_tok)


def _encode(data: bytes) -> str:
    import pybase64

    text: str = pybase64.b64encode(data).decode()
    return text
