"""vLLM's fields in chat requests and completions, as TRL sends them.

`top_k: 0` is off, `structured_outputs` is a grammar, and `prompt_logprobs` of a
completion adds the prompt's logprobs to each choice. SGLang rejects the first, and
ignores the others.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

from . import vllm_api, vllm_sampling
from .vllm_http import BadRequest, integer, is_off

if TYPE_CHECKING:
    from sglang.srt.entrypoints.openai.protocol import (
        ChatCompletionRequest,
        CompletionRequest,
    )
    from sglang.srt.entrypoints.openai.serving_base import OpenAIServingBase
    from sglang.srt.entrypoints.openai.serving_completions import (
        OpenAIServingCompletion,
    )
    from sglang.srt.managers.io_struct import GenerateReqInput

_GRAMMARS = ("json_schema", "regex", "ebnf", "structural_tag")


def ask_chat(request: ChatCompletionRequest, adapted: GenerateReqInput) -> None:
    """Pass vLLM's fields of a chat request to the engine.

    Raises:
        BadRequest: a field is not supported, or its value is not valid.
    """
    for name, value, instead in (
        (
            "prompt_logprobs",
            request.prompt_logprobs,
            "Send the prompt to /v1/completions or /inference/v1/generate",
        ),
        (
            "chat_template",
            request.chat_template,
            "Launch the server with --chat-template, or omit the field",
        ),
    ):
        if not is_off(value):
            raise BadRequest(name, f"{name} is not supported in chat. {instead}.")
    _ask(request, adapted)


def ask_completion(
    serving: OpenAIServingBase, request: CompletionRequest, adapted: GenerateReqInput
) -> None:
    """Pass vLLM's fields of a completion to the engine.

    Raises:
        BadRequest: the value of a field is not valid.
    """
    _ask(request, adapted)
    name = "prompt_logprobs"
    if request.prompt_logprobs is None:
        return
    vocab_size = serving.tokenizer_manager.model_config.vocab_size
    count = integer(name, request.prompt_logprobs, 0, vocab_size)
    if request.stream:
        raise BadRequest(
            name, f"{name} is not supported while streaming: set stream=false."
        )
    request.prompt_logprobs = count
    adapted.return_logprob = True
    adapted.logprob_start_len = 0
    adapted.top_logprobs_num = max(request.logprobs or 0, count)


def _ask(
    request: ChatCompletionRequest | CompletionRequest, adapted: GenerateReqInput
) -> None:
    params: dict[str, Any] = adapted.sampling_params
    if params.get("top_k") == 0:
        params["top_k"] = -1
    grammar = vllm_sampling.grammar(request.structured_outputs)
    if grammar and any(params.get(name) for name in _GRAMMARS):
        name = "structured_outputs"
        raise BadRequest(
            name,
            f"{name} is not supported together with another grammar: that of "
            "response_format, of a tool call, or of regex, ebnf or json_schema.",
        )
    params.update(grammar)


def with_prompt_logprobs(build: Any) -> Any:
    """Decorate `_build_completion_response`: add the prompt's logprobs if requested."""

    @wraps(build)
    def built(
        self: OpenAIServingCompletion,
        request: CompletionRequest,
        ret: list[dict[str, Any]],
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        count = request.prompt_logprobs
        if count is None:
            return build(self, request, ret, *args, **kwargs)
        found = [vllm_api.prompt_logprobs(count, one["meta_info"]) for one in ret]
        ret = [_of_output(one, request.logprobs or 0) for one in ret]
        response = build(self, request, ret, *args, **kwargs)
        for choice, prompt_logprobs in zip(response.choices, found, strict=True):
            choice.prompt_logprobs = prompt_logprobs
        return response

    return built


def _of_output(ret_item: dict[str, Any], count: int) -> dict[str, Any]:
    """Cut the alternatives to those that `logprobs` asks for."""
    meta_info = ret_item["meta_info"].copy()
    for name in ("output_top_logprobs", "input_top_logprobs"):
        rows = meta_info.get(name)
        if rows:
            meta_info[name] = [row and row[:count] for row in rows] if count else []
    return {**ret_item, "meta_info": meta_info}
