"""`/v1/messages` with `return_token_ids`, a part of the patch `token-ids`.

The endpoint translates chat answers; what it leaves out of them is put back.
"""

from __future__ import annotations

from dataclasses import replace

from agentcore_patches.edits import (
    AddField,
    AddKeyword,
    AddParameter,
    Edit,
    Graft,
    Insert,
)
from agentcore_patches.grafts.message_token_trace import (
    MessageTokenTrace,
    _add_token_trace,
)
from agentcore_patches.patches._files import ANTHROPIC_PROTOCOL, ANTHROPIC_SERVING

_SERVING = "AnthropicServing"

FIELDS: tuple[Edit, ...] = (
    AddField(
        ANTHROPIC_PROTOCOL,
        "AnthropicMessagesRequest",
        "return_token_ids: Optional[bool] = None",
        note="whether to answer with token IDs and logprobs",
    ),
    *(
        AddField(
            ANTHROPIC_PROTOCOL,
            "AnthropicMessagesResponse",
            f"{field} = None",
            note="return_token_ids",
        )
        for field in (
            "prompt_token_ids: Optional[list[int]]",
            "token_ids: Optional[list[int]]",
            "token_logprobs: Optional[list[float]]",
        )
    ),
)

REQUEST: tuple[Edit, ...] = (
    Insert(
        ANTHROPIC_SERVING,
        f"{_SERVING}._convert_to_chat_completion_request",
        'request_data["return_token_ids"] = bool(anthropic_request.return_token_ids)\n'
        'request_data["logprobs"] = bool(anthropic_request.return_token_ids)',
        before="chat_request = ChatCompletionRequest(**request_data)",
        note="nothing that is not asked for",
    ),
)

NON_STREAMING: tuple[Edit, ...] = (
    Graft(
        ANTHROPIC_SERVING,
        _SERVING,
        _add_token_trace,
        note="return_token_ids",
    ),
    Insert(
        ANTHROPIC_SERVING,
        f"{_SERVING}._handle_non_streaming",
        "if anthropic_request.return_token_ids:\n"
        "    _add_token_trace(anthropic_response, response)",
        after="anthropic_response = self._convert_response(response)",
    ),
)

STREAMING: tuple[Edit, ...] = (
    Graft(
        ANTHROPIC_SERVING,
        _SERVING,
        MessageTokenTrace,
        note="token IDs and logprobs, kept until an event carries them",
    ),
    AddParameter(ANTHROPIC_SERVING, "_wrap_sse_event", "trace=None"),
    Insert(
        ANTHROPIC_SERVING,
        "_wrap_sse_event",
        "if trace is not None:\n    data = trace.stamp(data)",
        note="return_token_ids",
    ),
    Insert(
        ANTHROPIC_SERVING,
        f"{_SERVING}._generate_anthropic_stream",
        "trace = MessageTokenTrace() if anthropic_request.return_token_ids else None",
        note="return_token_ids",
    ),
    *(
        AddKeyword(
            ANTHROPIC_SERVING,
            f"{_SERVING}._generate_anthropic_stream",
            "_wrap_sse_event",
            "trace=trace",
            each=n_calls,
            since=since,
            until=until,
        )
        # From v0.5.14 on a function in the stream's makes all events.
        for n_calls, since, until in ((11, "0.5.9", "0.5.13"), (1, "0.5.14", ""))
    ),
    Insert(
        ANTHROPIC_SERVING,
        f"{_SERVING}._generate_anthropic_stream",
        "if trace is not None:\n    trace.push(chunk)",
        after="chunk = ChatCompletionStreamResponse.model_validate_json(data_str)",
    ),
)

# v0.5.8 has no such endpoint.
MESSAGES = tuple(
    replace(edit, since=edit.since or "0.5.9")
    for edit in (*FIELDS, *REQUEST, *NON_STREAMING, *STREAMING)
)
