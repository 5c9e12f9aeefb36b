"""`/v1/completions` with `return_token_ids`.

Here every output of the engine becomes a chunk, with or without text, so no ID is held
back. But the engine's logprobs may be ahead of the IDs, so lines are stamped as in
chat. From 0.5.17 on, SGLang itself has the flag and returns both lists.
"""

from __future__ import annotations

from agentcore_patches.edits import (
    AddField,
    Decorate,
    RefuseField,
    Replace,
)
from agentcore_patches.patches.hooks import Hook, absent
from agentcore_patches.patches.paths import PROTOCOL, SERVING_COMPLETIONS

_COMPLETION = "OpenAIServingCompletion"
_UPSTREAM = "PR 30917, 0.5.17"
_STREAM = f"{_COMPLETION}._generate_completion_stream"

_STAMPED = ("token_logprobs", "routed_experts", "routed_experts_start_len")

HOOKS: tuple[Hook, ...] = (
    Hook(
        "completions/request",
        "return_token_ids: true adds token IDs; null counts as absent",
        AddField(
            PROTOCOL,
            "CompletionRequest",
            "return_token_ids: Optional[bool] = None",
            native="return_token_ids: bool = False",
        ),
        upstream=_UPSTREAM,
    ),
    Hook(
        "completions/prompt-flag",
        "return_prompt_token_ids: false omits the prompt's token IDs",
        AddField(
            PROTOCOL,
            "CompletionRequest",
            "return_prompt_token_ids: Optional[bool] = None",
        ),
    ),
    Hook(
        "completions/choice",
        "hold the token IDs of the prompt and of this choice",
        AddField(
            PROTOCOL,
            "CompletionResponseChoice",
            "prompt_token_ids: Optional[List[int]] = None\n"
            "token_ids: Optional[List[int]] = None",
        ),
        since={
            "0.5.17": absent("SGLang has the fields"),
        },
        upstream=f"{_UPSTREAM}; PR 38459, open, renames token_ids",
    ),
    Hook(
        "completions/stamp",
        "write token IDs and logprobs on each line of the stream",
        Decorate(SERVING_COMPLETIONS, _STREAM, "agentcore.http.traces.completions"),
    ),
    Hook(
        "completions/new-text",
        "--stream-output already delivers only the new text",
        absent("a chunk has the whole text, even with --stream-output"),
        since={
            "0.5.10": Replace(
                SERVING_COMPLETIONS,
                _STREAM,
                "delta = text[$OFFSET:]",
                "delta = (\n"
                "    text\n"
                "    if agentcore_trace is not None and agentcore_trace.incremental\n"
                "    else text[$OFFSET:]\n"
                ")",
            ),
            "0.5.17": absent("SGLang knows whether a chunk has only the new text"),
        },
    ),
    Hook(
        "completions/no-such-field",
        "the patch writes this field itself; lines would have it twice",
        RefuseField(
            PROTOCOL,
            "CompletionResponseStreamChoice",
            ("token_ids", "prompt_token_ids", *_STAMPED),
        ),
        since={
            # SGLang has the two others; they are None if lines are stamped.
            "0.5.17": RefuseField(PROTOCOL, "CompletionResponseStreamChoice", _STAMPED),
        },
    ),
    Hook(
        "completions/no-such-field-on-chunks",
        "the patch writes this field itself; lines would have it twice",
        RefuseField(PROTOCOL, "CompletionStreamResponse", ("metadata",)),
    ),
)
