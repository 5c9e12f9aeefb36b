"""`/v1/messages` with `return_token_ids`.

The endpoint translates chat responses and drops their token IDs, and in early releases
the words of their errors; the hooks add them again. 0.5.8 has neither the endpoint nor
its files.
"""

from __future__ import annotations

from agentcore_patches.edits import AddField, Decorate, Insert
from agentcore_patches.patches.hooks import Hook, absent
from agentcore_patches.patches.paths import ANTHROPIC_PROTOCOL, ANTHROPIC_SERVING

_SERVING = "AnthropicServing"
_STREAM = f"{_SERVING}._generate_anthropic_stream"

_NATIVE = absent("SGLang passes errors of chat on")

HOOKS: tuple[Hook, ...] = (
    Hook(
        "messages/request",
        "return token IDs and logprobs; take lora_path, as chat does",
        AddField(
            ANTHROPIC_PROTOCOL,
            "AnthropicMessagesRequest",
            "return_token_ids: Optional[bool] = None\n"
            "return_prompt_token_ids: Optional[bool] = None\n"
            "lora_path: Optional[str] = None",
        ),
    ),
    Hook(
        "messages/refuse",
        "answer 400 to a request that cannot be converted, as chat does",
        Insert(
            ANTHROPIC_SERVING,
            f"{_SERVING}._handle_non_streaming",
            "if isinstance(e, ValueError):\n"
            "    return agentcore.http.messages.refuse(self, e)",
            before="logger.exception(..., e)",
        ),
        since={
            "0.5.23": absent("SGLang does it"),
        },
        upstream="0.5.23",
        also=(f"{_SERVING}._handle_streaming",),
    ),
    Hook(
        "messages/error",
        "pass on the status and the message of an error of chat",
        Insert(
            ANTHROPIC_SERVING,
            f"{_SERVING}._handle_non_streaming",
            'if hasattr(response, "body"):\n'
            "    return agentcore.http.messages.pass_on(self, response)",
            before="if not isinstance(response, ChatCompletionResponse): ...",
        ),
        since={
            "0.5.14": _NATIVE,
        },
        upstream="0.5.14",
    ),
    Hook(
        "messages/until-error",
        "end the stream with an error event if chat fails",
        Insert(
            ANTHROPIC_SERVING,
            _STREAM,
            "openai_stream = agentcore.http.messages.until_error(openai_stream)",
            after="openai_stream = self.openai_serving_chat._generate_chat_stream(...)",
        ),
        since={
            "0.5.14": _NATIVE,
        },
        upstream="0.5.14",
    ),
    Hook(
        "messages/error-event",
        "send the error event as it is; the stream ends with it",
        Insert(
            ANTHROPIC_SERVING,
            _STREAM,
            'if sse_line.startswith("event: error"):\n    yield sse_line',
            before='if not sse_line.startswith("data: "): ...',
        ),
        since={
            "0.5.14": _NATIVE,
        },
        upstream="0.5.14",
    ),
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
        "return token IDs only on request; pass lora_path on",
        Insert(
            ANTHROPIC_SERVING,
            f"{_SERVING}._convert_to_chat_completion_request",
            "agentcore.http.messages.ask(request_data, anthropic_request)",
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
            "    agentcore.http.messages.add_to_message(anthropic_response, response)",
            after="anthropic_response = self._convert_response(response)",
        ),
    ),
    Hook(
        "messages/stamp",
        "write token IDs and logprobs on each event of the stream",
        Decorate(ANTHROPIC_SERVING, _STREAM, "agentcore.http.messages.events"),
    ),
)
