"""vLLM's fields in chat requests and completions, as TRL sends them.

SGLang rejects `top_k: 0`, and ignores the others. Here each is served, or rejected if
without it the response would hold other tokens, or less than the request asks for.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any

from ..http import logprobs
from ..shared.decorators import wrapping
from . import generate, sampling
from .bodies import BadRequest, find_stop_reason, flag, integer, is_off

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

    from ..http.request_fields import ApiRequest

_GRAMMARS = ("json_schema", "regex", "ebnf", "structural_tag")

_INSTEAD = "Send structured_outputs"

# Fields that SGLang cannot honour, and what works instead.
_REFUSED = {
    "allowed_token_ids": "Omit it",
    "bad_words": "Omit it",
    "best_of": "Send n",
    "documents": "Send it in chat_template_kwargs",
    "ec_transfer_params": "Omit it",
    "echo": "Send the prompt to /v1/completions",
    "guided_choice": _INSTEAD,
    "guided_grammar": _INSTEAD,
    "guided_json": _INSTEAD,
    "guided_json_object": _INSTEAD,
    "guided_regex": _INSTEAD,
    "guided_whitespace_pattern": _INSTEAD,
    "kv_transfer_params": "Omit it",
    "logits_processors": "Send custom_logit_processor",
    "logprob_token_ids": "Omit it",
    "media_io_kwargs": "Omit it",
    "mm_processor_kwargs": "Omit it",
    "prompt_embeds": "Omit it",
    "repetition_detection": "Omit it",
    "routed_experts_prompt_start": "Send routed_experts_start_len",
    "thinking_token_budget": "Omit it",
    "truncate_prompt_tokens": "Shorten the prompt",
    "use_beam_search": "Omit it",
    "vllm_xargs": "Omit it",
    "watermarking": "Omit it",
}

_REFUSED_IN_CHAT = {
    "prompt_logprobs": "Send the prompt to /v1/completions or /inference/v1/generate",
    "chat_template": "Launch the server with --chat-template, or omit the field",
    "add_generation_prompt: false": "Send the prompt to /v1/completions",
    "add_special_tokens: true": "The chat template writes the special tokens: omit the "
    "field",
}

_KEPT = (
    *_REFUSED,
    "add_generation_prompt",
    "add_special_tokens",
    "include_stop_str_in_output",
)


def keep(model: Any, values: Any) -> Any:
    """Keep the fields that only vLLM has: SGLang's class of the request drops them."""
    if not isinstance(values, dict):
        return values
    # SGLang declares best_of for completions, and ignores it.
    known = model.model_fields.keys() - {"best_of"}
    kept = {name: values[name] for name in _KEPT if name in values.keys() - known}
    if kept or "vllm_fields" in values:
        return {**values, "vllm_fields": kept}
    return values


def ask_chat(request: ChatCompletionRequest, adapted: GenerateReqInput) -> None:
    """Pass vLLM's fields of a chat request to the engine."""
    fields: dict[str, Any] = request.vllm_fields or {}
    wanted = {
        "prompt_logprobs": not is_off(request.prompt_logprobs),
        "chat_template": not is_off(request.chat_template),
        "add_generation_prompt: false": _is_false(fields, "add_generation_prompt")
        and not request.continue_final_message,
        "add_special_tokens: true": flag(
            "add_special_tokens", fields.get("add_special_tokens")
        ),
    }
    for name, instead in _REFUSED_IN_CHAT.items():
        if wanted[name]:
            raise BadRequest(name, f"{name} is not supported in chat. {instead}.")
    _ask(request, adapted, fields)


def _is_false(fields: dict[str, Any], name: str) -> bool:
    """True if a field that is true by default is false."""
    value = fields.get(name)
    return value is not None and not flag(name, value)


def ask_completion(
    serving: OpenAIServingBase, request: CompletionRequest, adapted: GenerateReqInput
) -> None:
    """Pass vLLM's fields of a completion to the engine."""
    fields: dict[str, Any] = request.vllm_fields or {}
    _ask(request, adapted, fields)
    if _is_false(fields, "add_special_tokens") and adapted.text is not None:
        encode = serving.tokenizer_manager.tokenizer
        encoded = encode(adapted.text, add_special_tokens=False)
        adapted.text, adapted.input_ids = None, encoded["input_ids"]
    if _echoes_scores(request):
        adapted.logprob_start_len = 0
        adapted.top_logprobs_num = 1
        if request.stream and not request.return_token_ids:
            request.logprobs = 1  # SGLang's stream omits the prompt's with 0.
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
    adapted.top_logprobs_num = max(adapted.top_logprobs_num or 0, count)


def _echoes_scores(request: CompletionRequest) -> bool:
    """True for `echo` with `logprobs: 0`: SGLang has them for a higher number only."""
    return bool(request.echo) and request.logprobs == 0


def _ask(
    request: ApiRequest, adapted: GenerateReqInput, fields: dict[str, Any]
) -> None:
    neutral = {
        "best_of": request.n,
        "routed_experts_prompt_start": 0,
        "thinking_token_budget": -1,
        "truncate_prompt_tokens": -1,
    }
    for name, instead in _REFUSED.items():
        value = fields.get(name)
        if not is_off(value) and value != neutral.get(name, ()):
            raise BadRequest(name, f"{name} is not supported on SGLang. {instead}.")
    params: dict[str, Any] = adapted.sampling_params
    if params.get("top_k") == 0:
        params["top_k"] = -1
    name = "include_stop_str_in_output"
    if flag(name, fields.get(name)):
        params["no_stop_trim"] = True
    grammar = sampling.grammar(request.structured_outputs)
    if grammar and any(params.get(name) for name in _GRAMMARS):
        name = "structured_outputs"
        raise BadRequest(
            name,
            f"{name} is not supported together with another grammar: that of "
            "response_format, of a tool call, or of regex, ebnf or json_schema.",
        )
    params.update(grammar)


@wrapping
def finished(
    build: Any,
    self: OpenAIServingCompletion,
    request: CompletionRequest,
    ret: list[dict[str, Any]],
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Decorate `_build_completion_response`: add vLLM's fields of logprobs.

    They are those of the prompt, and the position of each token in the text.
    """
    count = request.prompt_logprobs
    found: list[Any] = []
    if count is not None:
        found = [generate.prompt_logprobs(count, one["meta_info"]) for one in ret]
        ret = [_of_output(one, request.logprobs or 0) for one in ret]
    echoes_scores = _echoes_scores(request)
    if echoes_scores:
        own_top = logprobs.with_own_top
        ret = [{**one, "meta_info": own_top(one["meta_info"])} for one in ret]
        # With 0, SGLang omits the prompt's from 0.5.21 on.
        request = request.model_copy(update={"logprobs": 1})
    response = build(self, request, ret, *args, **kwargs)
    for choice, prompt_logprobs in zip(response.choices, found, strict=False):
        choice.prompt_logprobs = prompt_logprobs
    if request.logprobs is not None and (echoes_scores or request.return_token_ids):
        for choice in response.choices:
            lengths = map(len, choice.logprobs.tokens)
            choice.logprobs.text_offset = [*accumulate(lengths, initial=0)][:-1]
    return response


def _of_output(ret_item: dict[str, Any], count: int) -> dict[str, Any]:
    """Cut the alternatives to those that `logprobs` asks for."""
    meta_info = ret_item["meta_info"].copy()
    for name in ("output_top_logprobs", "input_top_logprobs"):
        rows = meta_info.get(name)
        if rows:
            meta_info[name] = [row and row[:count] for row in rows] if count else []
    return {**ret_item, "meta_info": meta_info}


def stop_reason(
    serving: OpenAIServingBase, request: ApiRequest, meta_info: dict[str, Any]
) -> dict[str, Any]:
    """Return the stop string or token ID that ended a choice as a field."""
    manager = serving.tokenizer_manager
    reason = find_stop_reason(manager, request.ignore_eos, meta_info)
    return {} if reason is None else {"stop_reason": reason}
