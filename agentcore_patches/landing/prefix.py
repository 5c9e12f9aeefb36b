"""Prompts that begin with exactly the tokens of a conversation's earlier turns.

A request says these (`required_prefix_token_ids`, or token IDs on a message of the
assistant's), or the server remembers them. Behind them goes what the chat template
writes next.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import nullcontext
from contextvars import ContextVar
from functools import partial, wraps
from http import HTTPStatus
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from . import (
    conversations,
    images,
    messages,
    prompts,
    streams,
    template_tail,
    traces,
)

if TYPE_CHECKING:
    from fastapi import Request
    from sglang.srt.entrypoints.anthropic.protocol import (
        AnthropicMessagesRequest,
        AnthropicMessagesResponse,
    )
    from sglang.srt.entrypoints.anthropic.serving import AnthropicServing
    from sglang.srt.entrypoints.openai.protocol import (
        ChatCompletionRequest,
        ChatCompletionResponse,
        ChatMessage,
    )
    from sglang.srt.entrypoints.openai.serving_base import OpenAIServingBase
    from sglang.srt.entrypoints.openai.serving_chat import OpenAIServingChat
    from sglang.srt.managers.io_struct import GenerateReqInput
    from sglang.srt.managers.tokenizer_manager import TokenizerManager

    from .remembered import Conversation
    from .response_turns import ResponseTurn

FIELD = "required_prefix_token_ids"

# That of the response of /v1/responses whose chat request is being made.
response_turn: ContextVar[ResponseTurn | None] = ContextVar(
    "agentcore_response_turn", default=None
)


class PrefixError(ValueError):
    """Why a request cannot have the prefix that it asks for."""


class Prefix(NamedTuple):
    """Token IDs that a prompt is to begin with.

    Attributes:
        name: what a refusal calls them.
        source: who said them: "request", "message" or "server".
        position: of the assistant message that they end with.
    """

    token_ids: list[int]
    name: str
    source: str
    position: int


class Answer:
    """The message of one choice, as a client puts it together from a stream."""

    def __init__(self) -> None:
        self.content = ""
        self.calls: dict[int, Any] = {}

    @property
    def tool_calls(self) -> list[Any]:
        """The tool calls, in their order."""
        return [self.calls[index] for index in sorted(self.calls)]

    def add(self, delta: dict[str, Any]) -> None:
        """Take in what a chunk says."""
        self.content += delta.get("content") or ""
        for part in delta.get("tool_calls") or ():
            new = SimpleNamespace(function=SimpleNamespace(name="", arguments=""))
            function = self.calls.setdefault(part.get("index") or 0, new).function
            said = part.get("function") or {}
            function.name = said.get("name") or function.name
            function.arguments += said.get("arguments") or ""


class Turn:
    """One turn of a conversation: what its prompt continues, and who continues it.

    Attributes:
        conversation: that the answers go on with, None if they are not remembered.
        reasoning_parser: of the server.
        prompt: the prefix and what follows it, None if the template's prompt is taken.
        metadata: what the answer says of its prefix, None if it says nothing.
        answers: what a stream has said so far, by choice.
    """

    def __init__(self, conversation: Conversation | None, reasoning_parser: str | None):
        self.conversation = conversation
        self.reasoning_parser = reasoning_parser
        self.prompt: list[int] | None = None
        self.metadata: dict[str, Any] | None = None
        self.answers: dict[int, Answer] = {}

    def continue_from(
        self,
        serving: OpenAIServingChat,
        request: ChatCompletionRequest,
        prefix: Prefix,
        rendered: list[int],
        template: template_tail.Template,
    ) -> None:
        """Make the prompt: the prefix, and what the template writes after it.

        Args:
            rendered: the prompt as the template alone writes it.

        Raises:
            ValueError: the prompt is too long, or the template hides what follows.
        """
        manager, messages = serving.tokenizer_manager, request.messages
        required = prefix.token_ids
        stops = template_tail.stop_token_ids(manager)
        if required[-1] in (request.stop_token_ids or ()):
            stops.add(required[-1])
        tail: list[int] = []
        if prefix.position < len(messages) - 1:
            tail = template_tail.find_tail(
                manager.tokenizer, template, messages, prefix.position, rendered, stops
            )
        elif not request.continue_final_message:
            raise template_tail.UncertainTail(
                f"{prefix.name} ends with the last message, which no message follows: "
                "send the next one, or set continue_final_message to continue this one"
            )
        kept = required
        if tail and tail[0] == required[-1]:
            tail = tail[1:]
        elif required[-1] in stops:
            # The template's own end of the turn stands in its place.
            kept = required[:-1]
        prompt = [*kept, *tail]
        has_media = prompts.has_media(messages)
        error = prompts.check_token_ids(
            manager, prompt, f"{prefix.name} with what follows it", has_media
        )
        if error is not None:
            raise ValueError(error)
        if not has_media and images.has_placeholders(manager, required):
            raise ValueError(
                f"{prefix.name} has places for images, videos or audio, but messages "
                "has none of these: send those of the earlier turns again."
            )
        self.prompt = prompt
        count = template_tail.count_common
        if has_media:
            count = partial(images.count_matched, manager)
        self.metadata = {
            "required": len(required),
            "kept": len(kept),
            "template_matched": count(required, rendered),
            "source": prefix.source,
        }

    def miss(self, reason: str) -> None:
        """Have the answer say why the memory has no prefix for it."""
        self.metadata = {"source": "template", "missed": reason}

    def count(self) -> None:
        """Count whether the memory had a prefix, for the log."""
        memory = conversations.memory()
        if memory is None or self.conversation is None or self.metadata is None:
            return
        if self.metadata["source"] in ("server", "template"):
            memory.count(self.metadata.get("missed"))

    def take_in(self, chunk: dict[str, Any], trace: traces.Trace) -> None:
        """Take in what a stream says; remember a choice that is complete."""
        for choice in chunk.get("choices") or ():
            index = choice.get("index")
            answer = self.answers.setdefault(index, Answer())
            answer.add(choice.get("delta") or {})
            traced = trace.choices.get(index)
            if traced is not None and choice.get("finish_reason") is not None:
                self.remember(
                    answer,
                    choice["finish_reason"],
                    trace.prefilled,
                    traced.output_ids[: traced.n_received],
                )

    def remember(
        self,
        answer: ChatMessage | Answer,
        finish_reason: str,
        prompt: list[int] | None,
        token_ids: list[int],
    ) -> None:
        """Remember an answer, unless it was aborted or its prompt is unknown."""
        memory = conversations.memory()
        if memory is None or self.conversation is None or prompt is None:
            return
        if finish_reason != "abort":
            answered = conversations.with_answer(
                self.conversation, answer, self.reasoning_parser
            )
            memory.put(answered, [*prompt, *token_ids])


def continued(process: Any) -> Any:
    """Decorate `_process_messages`: a prompt begins with the turns before it.

    Raises (what it makes):
        PrefixError: the request cannot have the prefix that it asks for.
    """

    @wraps(process)
    def process_turn(
        self: OpenAIServingChat,
        request: ChatCompletionRequest,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        def make(serving: OpenAIServingChat, one: ChatCompletionRequest) -> Any:
            return process(serving, one, *args, **kwargs)

        response = response_turn.get()
        with nullcontext() if response is None else response.asking(request):
            return _continue(self, request, make)

    return process_turn


def _continue(
    serving: OpenAIServingChat, request: ChatCompletionRequest, process: Any
) -> Any:
    """What `_process_messages` makes of a request, with a prompt that continues.

    Raises:
        PrefixError: the request cannot have the prefix that it asks for.
    """
    asked = _find_asked(serving.tokenizer_manager, request)
    known, conversation, missed = _recall(serving, request)
    prefix = asked or known
    if prefix is None and conversation is None:
        return process(serving, request)
    # Rendering changes the request.
    as_sent = request.model_copy()
    result = process(serving, request)
    request._turn = turn = Turn(conversation, serving.reasoning_parser)
    if prefix is None:
        if missed is not None:
            turn.miss(missed)
        return result

    def process_again(serving: OpenAIServingChat, messages: list[Any]) -> Any:
        return process(serving, as_sent.model_copy(update={"messages": messages}))

    template = template_tail.Template(serving, process_again)
    rendered = template_tail.token_ids_of(serving, result)
    try:
        turn.continue_from(serving, request, prefix, rendered, template)
    except ValueError as error:
        if asked:
            raise PrefixError(str(error)) from error
        turn.miss("unusable")
    if turn.prompt is not None:
        # Of a multimodal model SGLang takes the text.
        result.prompt = result.prompt_ids = turn.prompt
    return result


def _find_asked(
    manager: TokenizerManager, request: ChatCompletionRequest
) -> Prefix | None:
    """The prefix that a request asks for, None if it asks for none.

    Raises:
        PrefixError: it is none.
    """
    prefix, last = None, None
    for index, message in enumerate(request.messages):
        if message.role != "assistant":
            continue
        last = index
        prompt = _ids_of(message, "prompt_token_ids", index)
        for field in ("generation_token_ids", "token_ids"):
            if generated := _ids_of(message, field, index):
                break
        if prompt and generated:
            name = f"messages[{index}].prompt_token_ids with its {field}"
            prefix = Prefix([*prompt, *generated], name, "message", index)
    if request.required_prefix_token_ids:
        if last is None:
            raise PrefixError(
                f"{FIELD} ends with an assistant message, but messages has none."
            )
        prefix = Prefix(request.required_prefix_token_ids, FIELD, "request", last)
    if prefix is None:
        return None
    # Only some patches add the field.
    if getattr(request, "input_ids", None) is not None:
        raise PrefixError(
            f"{prefix.name} cannot be used with input_ids, which are the whole prompt."
        )
    if manager.server_args.skip_tokenizer_init:
        raise PrefixError(
            f"{prefix.name} needs a tokenizer, but the server runs with "
            "--skip-tokenizer-init."
        )
    has_media = prompts.has_media(request.messages)
    error = prompts.check_token_ids(manager, prefix.token_ids, prefix.name, has_media)
    if error is not None:
        raise PrefixError(error)
    return prefix


def _ids_of(message: Any, field: str, index: int) -> list[Any] | None:
    """The token IDs that a message carries in a field, None if there are none.

    Raises:
        PrefixError: it is no list.
    """
    value = getattr(message, field)
    if value is not None and not isinstance(value, list):
        raise PrefixError(
            f"messages[{index}].{field} must be a list of integers, but is of type "
            f"{type(value).__name__}."
        )
    return value or None


def _recall(
    serving: OpenAIServingChat, request: ChatCompletionRequest
) -> tuple[Prefix | None, Conversation | None, str | None]:
    """Return what the server remembers of a request, its conversation, and a miss.

    The conversation is None if the memory does not apply. The miss says why an answered
    turn was not found.
    """
    memory = conversations.memory()
    if memory is None or getattr(request, "input_ids", None) is not None:
        return None, None, None
    uses_memory = request._uses_memory
    if uses_memory is None:
        uses_memory = request.return_token_ids is not False
    if not uses_memory or request.messages[-1].role == "assistant":
        return None, None, None
    # What is behind the URL of an image may have changed, and its options with it.
    if prompts.has_media(request.messages):
        return None, None, None
    known, conversation, index = conversations.find(serving, request)
    if known is None:
        return None, conversation, None
    token_ids = memory.get(known)
    if token_ids is None:
        return None, conversation, memory.explain(known)
    prefix = Prefix(token_ids, "what the server remembers", "server", index)
    return prefix, conversation, None


def turn_of(request: Any) -> Turn | None:
    """Return the turn that `continued` made of a request, None if there is none."""
    turn = getattr(request, "_turn", None)
    # A mock has every attribute.
    return turn if isinstance(turn, Turn) else None


def attach(request: ChatCompletionRequest, adapted: GenerateReqInput) -> None:
    """Give the engine the prompt of a turn, and ask for what is to be remembered."""
    turn = turn_of(request)
    if turn is None:
        return
    if turn.prompt is not None:
        adapted.text, adapted.input_ids = None, turn.prompt
    if turn.conversation is not None:
        adapted.return_prompt_token_ids = True


def whole(build: Any) -> Any:
    """Decorate `_build_chat_response`: it says of the prefix, and is remembered."""

    @wraps(build)
    def built(
        self: OpenAIServingChat,
        request: ChatCompletionRequest,
        ret: list[dict[str, Any]],
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        response = build(self, request, ret, *args, **kwargs)
        turn = turn_of(request)
        if turn is None or not hasattr(response, "choices"):
            return response
        turn.count()
        if turn.metadata is not None:
            response.metadata = {**(response.metadata or {}), "prefix": turn.metadata}
        for choice, item in zip(response.choices, ret, strict=True):
            turn.remember(
                choice.message,
                choice.finish_reason,
                item.get("prompt_token_ids"),
                item["output_ids"],
            )
        return response

    return built


def streamed(generate: Any) -> Any:
    """Decorate `_generate_chat_stream`: it says of the prefix, and is remembered."""

    @wraps(generate)
    def stream(
        self: OpenAIServingChat,
        adapted_request: Any,
        request: ChatCompletionRequest,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        turn = turn_of(request)
        if turn is None:
            return generate(self, adapted_request, request, *args, **kwargs)
        turn.count()
        trace = kwargs.get("trace")
        metadata = turn.metadata
        if trace is None:
            trace = kwargs["trace"] = traces.Trace(traces.is_incremental(self))
        elif metadata is not None and not isinstance(trace, traces.EndTrace):
            # A trace of token IDs writes the metadata of a first chunk itself.
            trace.metadata, metadata = {"prefix": metadata}, None
        lines = generate(self, adapted_request, request, *args, **kwargs)
        if metadata is None and turn.conversation is None:
            return lines
        return traces.rewrite(self, lines, _follow(turn, metadata, trace))

    return stream


def _follow(
    turn: Turn, metadata: dict[str, Any] | None, trace: traces.Trace
) -> Callable[[str], str]:
    """Make what takes in each chunk, and adds to the first what the prefix was."""

    def follow(text: str) -> str:
        nonlocal metadata
        event = streams.parse(text)
        if event is None:
            return text
        chunk = event.data
        if metadata is not None and chunk.get("choices"):
            said = chunk.get("metadata") or {}
            chunk["metadata"] = {**said, "prefix": metadata}
            metadata = None
            text = event.text()
        turn.take_in(chunk, trace)
        return text

    return follow


def ask_chat(
    anthropic_request: AnthropicMessagesRequest, chat_request: ChatCompletionRequest
) -> None:
    """Ask chat for what a request to /v1/messages asks for."""
    chat_request.required_prefix_token_ids = anthropic_request.required_prefix_token_ids
    chat_request._uses_memory = anthropic_request.return_token_ids is not False


def refuse(serving: AnthropicServing, error: PrefixError) -> Any:
    """The answer of /v1/messages to a request that cannot have its prefix."""
    return serving._error_response(
        status_code=HTTPStatus.BAD_REQUEST,
        error_type="invalid_request_error",
        message=str(error),
    )


def add_to_message(
    message: AnthropicMessagesResponse, response: ChatCompletionResponse
) -> None:
    """Give a message what the chat answer it was made from says of its prefix."""
    prefix = (response.metadata or {}).get("prefix")
    if prefix is not None:
        message.metadata = {"prefix": prefix}


def events(generate: Any) -> Any:
    """Have the first event of a message say what its prefix was."""
    signature = inspect.signature(generate)

    @wraps(generate)
    def stream(*args: Any, **kwargs: Any) -> Any:
        lines = generate(*args, **kwargs)
        turn = turn_of(signature.bind(*args, **kwargs).arguments["processed_request"])
        if turn is None or turn.metadata is None:
            return lines
        return streams.rewrite(
            lines, _add_metadata(turn.metadata), messages.error_events
        )

    return stream


def _add_metadata(metadata: dict[str, Any]) -> Callable[[str], str]:
    """Make what adds to the first event of a message what the prefix was."""
    is_first = True

    def add(text: str) -> str:
        nonlocal is_first
        event = streams.parse(text) if is_first else None
        if event is None or event.data.get("type") != "message_start":
            return text
        is_first = False
        event.data["message"]["metadata"] = {"prefix": metadata}
        return event.text()

    return add


def carry(messages: list[Any] | None, dumped: list[dict[str, Any]]) -> None:
    """Give messages that were dumped the token IDs that the original ones carry."""
    for message, data in zip(messages or (), dumped, strict=True):
        if message.role == "assistant":
            for field in ("prompt_token_ids", "generation_token_ids", "token_ids"):
                if (value := getattr(message, field)) is not None:
                    data[field] = value


def with_chat(values: object) -> object:
    """A request to /tokenize in which what it says of chat is one chat request.

    Raises:
        ValueError: it has both a prompt and messages.
    """
    if not isinstance(values, dict) or values.get("messages") is None:
        return values
    if values.get("prompt") is not None:
        raise ValueError("Exactly one of 'prompt' or 'messages' must be provided.")
    return {"prompt": "", "chat_request": values}


async def tokenize(
    serving: OpenAIServingBase,
    chat_request: ChatCompletionRequest,
    raw_request: Request,
) -> Any:
    """The token IDs of the prompt of a chat request, as /tokenize gives them."""
    from sglang.srt.entrypoints.openai.protocol import TokenizeResponse

    chat = raw_request.app.state.openai_serving_chat
    try:
        error = chat._validate_request(chat_request)
        if error is not None:
            raise ValueError(error)
        adapted, _ = chat._convert_to_internal_request(chat_request, raw_request)
    except ValueError as error:
        return serving.create_error_response(str(error))
    tokenizer = serving.tokenizer_manager.tokenizer
    token_ids = adapted.input_ids
    if token_ids is None:
        token_ids = tokenizer.encode(adapted.text, add_special_tokens=False)
    return TokenizeResponse(
        tokens=token_ids,
        count=len(token_ids),
        max_model_len=context_length(serving),
    )


def context_length(serving: OpenAIServingBase) -> int:
    """Return the length that /tokenize reports: the tokenizer's, or else the model's.

    transformers gives a tokenizer that states none 10^30, which JSON cannot hold.
    """
    stated = getattr(serving.tokenizer_manager.tokenizer, "model_max_length", -1)
    if isinstance(stated, int) and stated < 2**63:
        return stated
    length: int = serving.tokenizer_manager.model_config.context_len
    return length
