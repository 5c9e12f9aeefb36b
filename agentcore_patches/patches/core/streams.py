"""Streams of chat and completions: outgoing lines are stamped with token IDs.

SGLang's own code still builds the chunks, wherever it is. On /v1/completions every output
of the engine becomes a chunk, with or without text, so no ID is held back. But the
engine's logprobs may be ahead of the IDs.
"""

from __future__ import annotations

from agentcore_patches.edits import (
    AddField,
    Decorate,
    Insert,
    RefuseField,
    Replace,
)
from agentcore_patches.patches.hooks import Hook, absent
from agentcore_patches.patches.paths import (
    CHAT_AND_COMPLETIONS,
    PROTOCOL,
    SERVING_CHAT,
    SERVING_COMPLETIONS,
)

_STREAM = "OpenAIServingChat._generate_chat_stream"
_COMPLETION_STREAM = "OpenAIServingCompletion._generate_completion_stream"
_STAMPED = (
    *("token_ids", "token_logprobs", "prompt_token_ids", "metadata"),
    *("routed_experts", "routed_experts_start_len"),
)
_STAMPED_ON_COMPLETIONS = (
    *("token_logprobs", "routed_experts", "routed_experts_start_len"),
)

HOOKS: tuple[Hook, ...] = (
    *(
        Hook(
            f"{endpoint}-streams/stamp",
            "write token IDs and logprobs on each line of the stream",
            Decorate(
                file,
                f"{serving}._generate_{endpoint}_stream",
                f"agentcore.http.traces.{endpoint}",
            ),
            upstream="PR 37365, open, for chat",
        )
        for endpoint, file, serving in CHAT_AND_COMPLETIONS
    ),
    Hook(
        "chat-streams/exchange",
        "hold what the patches know of a request; no JSON has it",
        AddField(
            PROTOCOL,
            "ChatCompletionRequest",
            "_exchange: Any = agentcore.http.exchanges.private()",
        ),
        also=("CompletionRequest",),
    ),
    *(
        Hook(
            f"{endpoint}-streams/trace",
            "get the trace; it is None if no line gets anything",
            Insert(
                file,
                f"{serving}._generate_{endpoint}_stream",
                "agentcore_trace = agentcore.http.exchanges.of(request).trace",
            ),
        )
        for endpoint, file, serving in CHAT_AND_COMPLETIONS
    ),
    *(
        Hook(
            f"{endpoint}-streams/push",
            "record each output; its token IDs go on the next line sent",
            Insert(
                file,
                f"{serving}._generate_{endpoint}_stream",
                "if agentcore_trace is not None:\n"
                "    agentcore_trace.push(index, content)",
                after='index = content.get("index", 0)',
            ),
        )
        for endpoint, file, serving in CHAT_AND_COMPLETIONS
    ),
    Hook(
        "chat-streams/new-text",
        "--stream-output already delivers only the new text",
        absent("a chunk has the whole text, even with --stream-output"),
        since={
            "0.5.10": Replace(
                SERVING_CHAT,
                _STREAM,
                'delta = content["text"][len(stream_buffer) :]',
                "delta = (\n"
                '    content["text"]\n'
                "    if agentcore_trace is not None and agentcore_trace.incremental\n"
                '    else content["text"][len(stream_buffer) :]\n'
                ")",
            ),
            "0.5.11": absent("SGLang knows whether a chunk has only the new text"),
        },
    ),
    Hook(
        "chat-streams/no-such-field",
        "the patch writes this field itself; lines would have it twice",
        RefuseField(PROTOCOL, "ChatCompletionResponseStreamChoice", _STAMPED),
        also=("ChatCompletionStreamResponse", "CompletionStreamResponse"),
    ),
    Hook(
        "completion-streams/no-such-field",
        "the patch writes this field itself; lines would have it twice",
        RefuseField(
            PROTOCOL,
            "CompletionResponseStreamChoice",
            ("token_ids", "prompt_token_ids", *_STAMPED_ON_COMPLETIONS),
        ),
        since={
            # SGLang has the two others; they are None if lines are stamped.
            "0.5.17": RefuseField(
                PROTOCOL, "CompletionResponseStreamChoice", _STAMPED_ON_COMPLETIONS
            ),
        },
    ),
    Hook(
        "completion-streams/new-text",
        "--stream-output already delivers only the new text",
        absent("a chunk has the whole text, even with --stream-output"),
        since={
            "0.5.10": Replace(
                SERVING_COMPLETIONS,
                _COMPLETION_STREAM,
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
        "chat-streams/no-such-field-on-structs",
        "the patch writes this field itself; lines would have it twice",
        absent("all chunks are pydantic models"),
        since={
            "0.5.11": RefuseField(
                "$stream_structs", "${stream_struct}Choice", _STAMPED
            ),
        },
        also=("${stream_struct}Chunk",),
    ),
)
