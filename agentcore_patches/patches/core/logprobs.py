"""One logprob per token, or an error that says why not."""

from __future__ import annotations

from agentcore_patches.edits import AddField, Insert, Replace
from agentcore_patches.patches.hooks import Hook
from agentcore_patches.patches.paths import (
    CHAT_AND_COMPLETIONS,
    HTTP_SERVER,
    LOGPROB_RESULTS,
    OUTPUT_PROCESSOR,
    PROTOCOL,
    SERVING_CHAT,
    SERVING_COMPLETIONS,
    TOKENIZER_MANAGER,
)


def _last_id(file: str, scope: str, ids: str) -> Replace:
    """Return the edit that keeps the vocabulary's last ID in the prompt's logprobs."""
    old = (
        f"{ids} = [\n"
        "    x if x < self.model_config.vocab_size - 1 else 0\n"
        "    for x in input_token_logprobs_idx\n"
        "]"
    )
    return Replace(file, scope, old, old.replace(" - 1", ""))


HOOKS: tuple[Hook, ...] = (
    Hook(
        "logprobs/flat-request",
        "return the logprob of each token, without its text",
        AddField(
            PROTOCOL,
            "ChatCompletionRequest",
            "return_token_logprobs: Optional[bool] = None",
        ),
        also=("CompletionRequest",),
    ),
    Hook(
        "logprobs/flat-choice",
        "hold one logprob for each of token_ids",
        AddField(
            PROTOCOL,
            "ChatCompletionResponseChoice",
            "token_logprobs: Optional[List[float]] = None",
        ),
        also=("CompletionResponseChoice",),
    ),
    *(
        Hook(
            f"logprobs/refuse-{endpoint}",
            "reject logprobs that the engine does not record",
            Insert(
                file,
                f"{serving}._validate_request",
                "agentcore_refusal = agentcore.http.logprobs.check(\n"
                "    self.tokenizer_manager, request\n"
                ")\n"
                "if agentcore_refusal is not None:\n"
                "    return agentcore_refusal",
            ),
        )
        for endpoint, file, serving in CHAT_AND_COMPLETIONS
    ),
    Hook(
        "logprobs/refuse-generate",
        "reject logprobs that the engine does not record",
        Insert(
            HTTP_SERVER,
            "$generate_request",
            "agentcore_refusal = agentcore.http.logprobs.refusal_of(\n"
            "    _global_state.tokenizer_manager, obj\n"
            ")\n"
            "if agentcore_refusal is not None:\n"
            "    return _create_error_response(agentcore_refusal)",
        ),
    ),
    Hook(
        "logprobs/last-id",
        "the vocabulary's last ID is a token, not an image's placeholder",
        _last_id(
            OUTPUT_PROCESSOR,
            "SchedulerOutputProcessorMixin._process_input_token_logprobs",
            "req.input_token_logprobs_idx",
        ),
        since={
            "0.5.13": _last_id(
                LOGPROB_RESULTS,
                "SchedulerLogprobResultProcessor._process_input_token_logprobs",
                "req.logprob.input_token_logprobs_idx",
            ),
        },
    ),
    Hook(
        "logprobs/finite",
        "fail a request whose logprobs are NaN or infinite",
        Insert(
            TOKENIZER_MANAGER,
            "TokenizerManager.convert_logprob_style",
            "agentcore.http.logprobs.require_finite(\n"
            "    self, meta_info, state, recv_obj, recv_obj_index\n"
            ")",
        ),
    ),
    Hook(
        "logprobs/cut-chat",
        "drop logprobs after a stop; fail if a token has none",
        Insert(
            SERVING_CHAT,
            "OpenAIServingChat._build_chat_response",
            "if agentcore.http.logprobs.come_with_ids(request):\n"
            "    agentcore.http.logprobs.cut(ret)",
        ),
    ),
    Hook(
        "logprobs/cut-completion",
        "drop logprobs after a stop; fail if a token has none",
        Insert(
            SERVING_COMPLETIONS,
            "OpenAIServingCompletion._build_completion_response",
            "if agentcore.http.logprobs.come_with_ids(request):\n"
            "    agentcore.http.logprobs.cut_completion(request, ret)",
        ),
    ),
)
