"""Turns that start with the exact tokens of the previous turns.

A chat template renders the whole conversation in each turn. It drops thinking,
reformats arguments and trims text. With the tokens of the earlier turns, from the
request or from memory, only the text after them is taken from the template.
"""

from __future__ import annotations

from agentcore_patches.edits import (
    AddField,
    Decorate,
    Insert,
)
from agentcore_patches.patches.hooks import Hook, absent
from agentcore_patches.patches.paths import (
    ANTHROPIC_PROTOCOL,
    ANTHROPIC_SERVING,
    PROTOCOL,
    SERVING_CHAT,
    SERVING_RESPONSES,
    SERVING_TOKENIZE,
)

_CHAT = "OpenAIServingChat"
_RESPONSES = "OpenAIServingResponses"
_MESSAGES = "AnthropicServing"

HOOKS: tuple[Hook, ...] = (
    # `prompts` checks the elements: pydantic accepts "7" and reports every bad one.
    Hook(
        "prefix/request",
        "start the prompt with these token IDs of the earlier turns",
        AddField(
            PROTOCOL,
            "ChatCompletionRequest",
            "required_prefix_token_ids: Optional[List[Any]] = None",
        ),
    ),
    # `exclude=True` hides these fields from chat templates.
    Hook(
        "prefix/message",
        "carry the token IDs of an earlier turn; templates skip them",
        AddField(
            PROTOCOL,
            "ChatCompletionMessageGenericParam",
            "prompt_token_ids: Any = Field(default=None, exclude=True)\n"
            "generation_token_ids: Any = Field(default=None, exclude=True)\n"
            "token_ids: Any = Field(default=None, exclude=True)",
        ),
    ),
    Hook(
        "prefix/client",
        "record which client asks: its conversations are only its own",
        Insert(
            SERVING_CHAT,
            f"{_CHAT}._convert_to_internal_request",
            "agentcore.http.prefix.record_client(request, raw_request)",
        ),
    ),
    Hook(
        "prefix/prompt",
        "start the prompt with the exact tokens of the earlier turns",
        Decorate(
            SERVING_CHAT,
            f"{_CHAT}._process_messages",
            "agentcore.http.prefix.continued",
        ),
        upstream="PR 38987, open, moves this function",
    ),
    Hook(
        "prefix/engine",
        "pass the prompt as token IDs, also for multimodal models",
        Insert(
            SERVING_CHAT,
            f"{_CHAT}._convert_to_internal_request",
            "agentcore.http.prefix.prepare(request, adapted_request)",
            before="return adapted_request, request",
        ),
    ),
    Hook(
        "prefix/whole",
        "add metadata.prefix, and remember the answer for later turns",
        Decorate(
            SERVING_CHAT, f"{_CHAT}._build_chat_response", "agentcore.http.prefix.whole"
        ),
    ),
    Hook(
        "prefix/stream",
        "add metadata.prefix, and remember the answer for later turns",
        Decorate(
            SERVING_CHAT,
            f"{_CHAT}._generate_chat_stream",
            "agentcore.http.prefix.streamed",
        ),
    ),
    Hook(
        "prefix/tokenize-request",
        "accept messages instead of a prompt",
        Insert(
            PROTOCOL,
            "TokenizeRequest",
            "chat_request: Optional[ChatCompletionRequest] = None\n"
            "_take_messages = "
            'model_validator(mode="before")(agentcore.http.prefix.with_chat)',
            before="prompt: Union[str, List[str]]",
        ),
        since={
            "0.5.12": absent("SGLang takes messages"),
        },
        upstream="messages of /tokenize, 0.5.12",
    ),
    Hook(
        "prefix/tokenize",
        "tokenize the prompt of the messages, its prefix included",
        Insert(
            SERVING_TOKENIZE,
            "OpenAIServingTokenize._handle_non_streaming_request",
            "if request.chat_request is not None:\n"
            "    return await agentcore.http.prefix.tokenize(\n"
            "        self, request.chat_request, raw_request\n"
            "    )",
        ),
        since={
            "0.5.12": absent("SGLang takes messages"),
        },
        upstream="messages of /tokenize, 0.5.12",
    ),
    Hook(
        "prefix/tokenize-client",
        "record which client asks: its conversations are only its own",
        absent("the chat handler records it"),
        since={
            "0.5.12": Decorate(
                SERVING_TOKENIZE,
                "OpenAIServingTokenize._handle_non_streaming_request",
                "agentcore.http.prefix.counted",
            ),
        },
    ),
    Hook(
        "prefix/tokenize-ids",
        "copy the token IDs of messages, which model_dump leaves out",
        absent("messages are not dumped"),
        since={
            "0.5.12": Insert(
                PROTOCOL,
                "TokenizeRequest.to_chat_completion_request",
                'agentcore.http.prefix.keep_token_ids(self.messages, data["messages"])',
                before='extra = getattr(self, "__pydantic_extra__", None)',
            ),
        },
    ),
    Hook(
        "prefix/responses-request",
        "start the prompt with these token IDs of the earlier turns",
        AddField(
            PROTOCOL,
            "ResponsesRequest",
            "required_prefix_token_ids: agentcore.http.response_turns.PrefixField = None",
        ),
    ),
    Hook(
        "prefix/responses",
        "apply the prefix or reject it with a 400; remember the answer",
        Decorate(
            SERVING_RESPONSES,
            f"{_RESPONSES}.create_responses",
            "agentcore.http.response_turns.followed",
        ),
    ),
    Hook(
        "prefix/messages-request",
        "start the prompt with these token IDs of the earlier turns",
        AddField(
            ANTHROPIC_PROTOCOL,
            "AnthropicMessagesRequest",
            "required_prefix_token_ids: Optional[list[Any]] = None",
        ),
    ),
    Hook(
        "prefix/messages-answer",
        "report the prefix with which the prompt starts",
        AddField(
            ANTHROPIC_PROTOCOL,
            "AnthropicMessagesResponse",
            "metadata: Optional[dict[str, Any]] = None",
        ),
    ),
    Hook(
        "prefix/messages-ask-chat",
        "pass the prefix on to chat, and whether to use the memory",
        Insert(
            ANTHROPIC_SERVING,
            f"{_MESSAGES}._convert_to_chat_completion_request",
            "agentcore.http.prefix.ask_chat(anthropic_request, chat_request)",
            after="chat_request = ChatCompletionRequest(**request_data)",
        ),
    ),
    Hook(
        "prefix/messages-whole",
        "copy metadata.prefix from the chat response",
        Insert(
            ANTHROPIC_SERVING,
            f"{_MESSAGES}._handle_non_streaming",
            "agentcore.http.prefix.add_to_message(anthropic_response, response)",
            after="anthropic_response = self._convert_response(response)",
        ),
    ),
    Hook(
        "prefix/messages-count-client",
        "record which client asks: its conversations are only its own",
        Decorate(
            ANTHROPIC_SERVING,
            f"{_MESSAGES}.handle_count_tokens",
            "agentcore.http.prefix.counted",
        ),
    ),
    Hook(
        "prefix/messages-stream",
        "add metadata.prefix to the first event",
        Decorate(
            ANTHROPIC_SERVING,
            f"{_MESSAGES}._generate_anthropic_stream",
            "agentcore.http.prefix.events",
        ),
    ),
)
