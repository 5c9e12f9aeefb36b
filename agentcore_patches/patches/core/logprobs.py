"""One logprob per token, or an error that says why not; tokens named by their IDs.

With `return_tokens_as_token_ids`, the engine is asked for logprobs without text, and
returns None instead of the text.
"""

from __future__ import annotations

from agentcore_patches.edits import AddField, Insert, Replace
from agentcore_patches.patches.hooks import Hook, absent
from agentcore_patches.patches.paths import (
    CHAT_AND_COMPLETIONS,
    LOGPROB_RESULTS,
    OPENAI_UTILS,
    OUTPUT_PROCESSOR,
    PROTOCOL,
    SERVING_CHAT,
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
        "logprobs/request",
        'return one logprob per token; name tokens by ID: "token_id:42"',
        AddField(
            PROTOCOL,
            "ChatCompletionRequest",
            "return_token_logprobs: Optional[bool] = None\n"
            "return_tokens_as_token_ids: Optional[bool] = None",
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
        "fail a request whose logprobs are NaN or infinite; drop strays",
        Insert(
            TOKENIZER_MANAGER,
            "TokenizerManager.convert_logprob_style",
            "agentcore.http.logprobs.require_finite(\n"
            "    self, meta_info, state, recv_obj, recv_obj_index\n"
            ")",
        ),
    ),
    *(
        Hook(
            f"logprobs/cut-{endpoint}",
            "drop logprobs after a stop; fail if a token has none",
            Insert(
                file,
                f"{serving}._build_{endpoint}_response",
                f"agentcore.http.logprobs.cut_{endpoint}(request, ret)",
            ),
        )
        for endpoint, file, serving in CHAT_AND_COMPLETIONS
    ),
    Hook(
        "token-names/tokens",
        "name tokens by ID if the engine omitted their text",
        Insert(
            OPENAI_UTILS,
            "to_openai_style_logprobs.append_token_logprobs",
            "token_logprobs = agentcore.http.logprobs.name_by_id(token_logprobs)",
        ),
    ),
    Hook(
        "token-names/top",
        "name top tokens by ID if the engine omitted their text",
        Insert(
            OPENAI_UTILS,
            "to_openai_style_logprobs.append_top_logprobs",
            "top_logprobs = agentcore.http.logprobs.name_top_by_id(top_logprobs)",
        ),
    ),
    Hook(
        "token-names/chat",
        "name tokens by ID if the engine omitted their text",
        absent("chat takes its logprobs from to_openai_style_logprobs"),
        since={
            "0.5.21": Insert(
                SERVING_CHAT,
                "OpenAIServingChat._build_token_logprobs_from_raw",
                "output_token_logprobs = agentcore.http.logprobs.name_by_id(\n"
                "    output_token_logprobs\n"
                ")\n"
                "output_top_logprobs = agentcore.http.logprobs.name_top_by_id(\n"
                "    output_top_logprobs\n"
                ")",
            ),
        },
    ),
)
