"""Streams of chat, for `token-ids`: lines are stamped as they leave.

What makes the chunks stays SGLang's own, whatever and wherever it is.
"""

from __future__ import annotations

from agentcore_patches.edits import (
    AddParameter,
    Decorate,
    Insert,
    RefuseField,
    Replace,
)
from agentcore_patches.patches.hooks import Hook, absent
from agentcore_patches.patches.paths import PROTOCOL, SERVING_CHAT

_STREAM = "OpenAIServingChat._generate_chat_stream"
_STAMPED = ("token_ids", "prompt_token_ids", "metadata")

# Also of `prefix`.
CHAT_PUSH: tuple[Hook, ...] = (
    Hook(
        "chat-streams/trace",
        "given unless return_token_ids is false",
        AddParameter(SERVING_CHAT, _STREAM, "trace: Any = None"),
    ),
    Hook(
        "chat-streams/push",
        "wait until a line carries them",
        Insert(
            SERVING_CHAT,
            _STREAM,
            "if trace is not None:\n    trace.push(index, content)",
            after='index = content.get("index", 0)',
        ),
    ),
)

CHAT_STREAMS: tuple[Hook, ...] = (
    Hook(
        "chat-streams/stamp",
        "token IDs and logprobs go on the lines that leave",
        Decorate(SERVING_CHAT, _STREAM, "agentcore.traces.chat"),
        upstream="PR 37365, open",
    ),
    *CHAT_PUSH,
    Hook(
        "chat-streams/new-text",
        "under --stream-output it is the new text already",
        absent("the text is all of it, with --stream-output too"),
        since={
            "0.5.10": Replace(
                SERVING_CHAT,
                _STREAM,
                'delta = content["text"][len(stream_buffer) :]',
                "delta = (\n"
                '    content["text"]\n'
                "    if trace is not None and trace.incremental\n"
                '    else content["text"][len(stream_buffer) :]\n'
                ")",
            ),
            "0.5.11": absent("SGLang knows whether the text is the new one alone"),
        },
    ),
    Hook(
        "chat-streams/no-field-of-ours",
        "stamped lines would have the field twice",
        RefuseField(PROTOCOL, "ChatCompletionResponseStreamChoice", _STAMPED),
        also=("ChatCompletionStreamResponse",),
    ),
    Hook(
        "chat-streams/no-field-of-ours-on-structs",
        "stamped lines would have the field twice",
        absent("all chunks are pydantic models"),
        since={
            "0.5.11": RefuseField(
                "$stream_structs", "${stream_struct}Choice", _STAMPED
            ),
        },
        also=("${stream_struct}Chunk",),
    ),
)
