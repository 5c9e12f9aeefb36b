"""`/v1/messages` with `return_token_ids`, a part of the patch `token-ids`.

The endpoint translates chat responses and drops their token IDs; the hooks add them
again. 0.5.8 has neither the endpoint nor its files.
"""

from __future__ import annotations

from agentcore_patches.edits import AddField, AddParameter, Decorate, Insert
from agentcore_patches.patches.hooks import Hook
from agentcore_patches.patches.paths import ANTHROPIC_PROTOCOL, ANTHROPIC_SERVING

_SERVING = "AnthropicServing"
_STREAM = f"{_SERVING}._generate_anthropic_stream"

REQUEST_FLAG: tuple[Hook, ...] = (
    Hook(
        "messages/request",
        "return_token_ids: true adds token IDs and logprobs",
        AddField(
            ANTHROPIC_PROTOCOL,
            "AnthropicMessagesRequest",
            "return_token_ids: Optional[bool] = None",
        ),
    ),
)

MESSAGES: tuple[Hook, ...] = (
    *REQUEST_FLAG,
    Hook(
        "messages/answer",
        "hold token IDs and logprobs if return_token_ids is true",
        AddField(
            ANTHROPIC_PROTOCOL,
            "AnthropicMessagesResponse",
            "prompt_token_ids: Optional[list[int]] = None\n"
            "token_ids: Optional[list[int]] = None\n"
            "token_logprobs: Optional[list[float]] = None",
        ),
    ),
    Hook(
        "messages/ask-chat",
        "/v1/messages returns token IDs only on request",
        Insert(
            ANTHROPIC_SERVING,
            f"{_SERVING}._convert_to_chat_completion_request",
            'request_data["return_token_ids"] = '
            "bool(anthropic_request.return_token_ids)\n"
            'request_data["logprobs"] = bool(anthropic_request.return_token_ids)',
            before="chat_request = ChatCompletionRequest(**request_data)",
        ),
    ),
    Hook(
        "messages/whole",
        "copy token IDs and logprobs from the chat response",
        Insert(
            ANTHROPIC_SERVING,
            f"{_SERVING}._handle_non_streaming",
            "if anthropic_request.return_token_ids:\n"
            "    agentcore.messages.add_to_message(anthropic_response, response)",
            after="anthropic_response = self._convert_response(response)",
        ),
    ),
    Hook(
        "messages/stamp",
        "write token IDs and logprobs on each event of the stream",
        Decorate(ANTHROPIC_SERVING, _STREAM, "agentcore.messages.events"),
    ),
    Hook(
        "messages/trace",
        "pass the trace; it is None unless return_token_ids is true",
        AddParameter(ANTHROPIC_SERVING, _STREAM, "trace=None"),
    ),
    Hook(
        "messages/push",
        "record each chat chunk; its token IDs go on the next event",
        Insert(
            ANTHROPIC_SERVING,
            _STREAM,
            "if trace is not None:\n    trace.push(data_str)",
            after=(
                "chunk = ChatCompletionStreamResponse.model_validate_json(data_str)"
            ),
        ),
    ),
)
