"""vLLM's `/v1/chat/completions/render`: the generate request that a chat becomes.

SGLang's chat endpoint makes the prompt, so it is the prompt that chat would prefill.
The response is a request for `/inference/v1/generate`, which accepts it as it is.
"""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING, Any

from ..http import prompts, request_fields
from . import sampling
from .bodies import BadRequest, flag, in_vllm_order, is_off

if TYPE_CHECKING:
    from fastapi import Request
    from sglang.srt.entrypoints.openai.protocol import ChatCompletionRequest
    from sglang.srt.entrypoints.openai.serving_chat import OpenAIServingChat
    from sglang.srt.managers.io_struct import GenerateReqInput
    from sglang.srt.managers.tokenizer_manager import TokenizerManager
    from sglang.srt.sampling.sampling_params import SamplingParams

logger = logging.getLogger(__name__)

PATH = "/v1/chat/completions/render"

# Fields of SGLang's chat requests that a generate request cannot carry.
_NOT_CARRIED = (
    "custom_logit_processor",
    "return_hidden_states",
    "bootstrap_host",
    "bootstrap_port",
    "bootstrap_room",
    "data_parallel_rank",
    "routed_dp_rank",
    "session_id",
    "session_params",
)


async def render(
    manager: TokenizerManager, request: Request, body: dict[str, Any]
) -> dict[str, Any]:
    """Return the generate request that a chat request becomes."""
    if manager.server_args.skip_tokenizer_init:
        raise BadRequest(
            None,
            "A chat cannot be rendered without a tokenizer, but the server runs with "
            "--skip-tokenizer-init.",
        )
    for name in _NOT_CARRIED:
        if not is_off(body.get(name)):
            raise BadRequest(
                name, f"{name} is not supported here. Send it to /v1/chat/completions."
            )
    chat = _chat_request(body)
    if prompts.has_media(chat.messages):
        raise BadRequest(
            "messages",
            "messages: images, videos and audio are not supported here. Send them to "
            "/v1/chat/completions, which processes them on the server.",
        )
    adapted = _convert(request.app.state.openai_serving_chat, request, chat)
    token_ids = adapted.input_ids
    if token_ids is None:
        token_ids, _ = await manager._tokenize_texts(adapted.text)
    return _generate_request(manager, body, chat, adapted, token_ids)


def verify(manager: TokenizerManager, params: dict[str, Any]) -> None:
    """Check sampling parameters, as SGLang does when it generates."""
    checked: SamplingParams = manager.sampling_params_class(**params)
    checked.normalize(manager.tokenizer)
    checked.verify(manager.model_config.vocab_size)


def _chat_request(body: dict[str, Any]) -> ChatCompletionRequest:
    from pydantic import ValidationError
    from sglang.srt.entrypoints.openai.protocol import ChatCompletionRequest

    try:
        return ChatCompletionRequest.model_validate({**body})
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "body"
        name = str(first["loc"][0]) if first["loc"] else "body"
        raise BadRequest(name, f"{place}: {first['msg']}.") from None
    except (AttributeError, KeyError, TypeError) as error:
        # SGLang's validators read some fields before pydantic checks their types.
        raise BadRequest(
            "body", f"The body is not a valid chat request: {error}."
        ) from None


def _convert(
    serving: OpenAIServingChat, request: Request, chat: ChatCompletionRequest
) -> GenerateReqInput:
    """Make the engine's request, as the chat endpoint does."""
    from fastapi import HTTPException

    error = serving._validate_request(chat)
    if error is not None:
        raise BadRequest(None, error)
    try:
        adapted, _ = serving._convert_to_internal_request(chat, request)
    except (HTTPException, ValueError):
        raise
    except Exception as failure:
        # A chat template may raise any exception for unexpected messages.
        logger.exception("A chat request cannot be rendered")
        raise BadRequest(
            None, f"The chat request cannot be rendered: {failure}."
        ) from failure
    return adapted


def _generate_request(
    manager: TokenizerManager,
    body: dict[str, Any],
    chat: ChatCompletionRequest,
    adapted: GenerateReqInput,
    token_ids: list[int],
) -> dict[str, Any]:
    """Write the request for `/inference/v1/generate`."""
    params = sampling.in_vllm_terms(adapted.sampling_params)
    # SGLang's clients write "default" if any model will do.
    model = None if chat.model == "default" else body.get("model")
    if adapted.return_logprob:
        params["logprobs"] = adapted.top_logprobs_num or 0
    start = request_fields.read(chat, "routed_experts_start_len")
    if start:
        params["routed_experts_prompt_start"] = start
    rendered = {
        "request_id": chat.rid or body.get("request_id") or uuid.uuid4().hex,
        "model": adapted.lora_path or model,
        "token_ids": token_ids,
        "features": None,
        "sampling_params": params,
        "output_mode": "tokens",
        "stream": chat.stream,
        "stream_options": body.get("stream_options"),
        "cache_salt": _salt(chat),
        "priority": in_vllm_order(manager, chat.priority or 0),
    }
    if flag("return_token_ids", body.get("return_token_ids")):
        rendered["return_token_ids"] = True
    if "structured_outputs" in params and adapted.require_reasoning:
        rendered["reasoning_ended"] = False
    return rendered


def _salt(chat: ChatCompletionRequest) -> str | None:
    parts = [part for part in (chat.cache_salt, chat.extra_key) if part]
    for part in parts:
        if not isinstance(part, str):
            raise BadRequest("cache_salt", "cache_salt must be a string.")
    return "".join(parts) or None
