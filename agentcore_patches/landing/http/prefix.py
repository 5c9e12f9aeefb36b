"""Prompts that begin with exactly the tokens of a conversation's earlier turns.

The tokens come from the request (`required_prefix_token_ids`, or token IDs on an
assistant message) or from the server's memory. After them comes the text that the chat
template writes next.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial
from operator import attrgetter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from ..shared.decorators import named, wrapping
from . import (
    conversations,
    exchanges,
    images,
    messages,
    metrics,
    prompts,
    remembered,
    request_fields,
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
    from sglang.srt.entrypoints.openai.protocol import (
        ChatCompletionMessageGenericParam,
        ChatCompletionRequest,
        ChatCompletionResponse,
        ChatMessage,
        ResponsesRequest,
    )
    from sglang.srt.entrypoints.openai.serving_base import OpenAIServingBase
    from sglang.srt.entrypoints.openai.serving_chat import OpenAIServingChat
    from sglang.srt.managers.io_struct import GenerateReqInput
    from sglang.srt.managers.tokenizer_manager import TokenizerManager

    from .exchanges import Exchange
    from .remembered import Conversation

FIELD = "required_prefix_token_ids"

# Fields of a chat request by which a client can choose the tokens of the answer, or add
# some that its text does not show.
_CHOOSING = {
    *("regex", "ebnf", "response_format", "structured_outputs"),
    *("logit_bias", "custom_logit_processor", "ignore_eos"),
}


class PrefixError(ValueError):
    """The prefix that a request asks for cannot be used; the message gives the reason.

    Attributes:
        source: where the prefix comes from: "request" or "message".
    """

    def __init__(self, message: str, source: str):
        super().__init__(message)
        self.source = source


class Refused(Exception):
    """A `PrefixError` of /v1/responses. SGLang would catch a `ValueError` there."""


class Prefix(NamedTuple):
    """Token IDs that a prompt must start with.

    Attributes:
        name: name of the prefix in error messages.
        source: where the IDs come from: "request", "message" or "server".
        position: index of the assistant message with which the prefix ends.
        written: for "server", as in `remembered.Conversation`.
    """

    token_ids: list[int]
    name: str
    source: str
    position: int
    written: bytes = b""


class Answer:
    """The message of one choice, put together from a stream as a client does it."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._calls: list[SimpleNamespace] = []
        self._latest: dict[int, SimpleNamespace] = {}

    @property
    def content(self) -> str:
        """The text."""
        return "".join(self._texts)

    @property
    def tool_calls(self) -> list[Any]:
        """The tool calls, ordered by index, then by their first parts."""
        return [
            SimpleNamespace(
                function=SimpleNamespace(name=call.name, arguments="".join(call.parts))
            )
            for call in sorted(self._calls, key=attrgetter("index"))
        ]

    def add(self, delta: dict[str, Any]) -> None:
        """Add the delta of a chunk.

        Only the first part of a tool call has an ID. Its index may be another call's.
        """
        if delta.get("content"):
            self._texts.append(delta["content"])
        for part in delta.get("tool_calls") or ():
            index = part.get("index") or 0
            if part.get("id") or index not in self._latest:
                begun = SimpleNamespace(index=index, name="", parts=[])
                self._latest[index] = begun
                self._calls.append(begun)
            call = self._latest[index]
            said = part.get("function") or {}
            call.name = said.get("name") or call.name
            call.parts.append(said.get("arguments") or "")


@dataclasses.dataclass(eq=False)
class Turn:
    """One turn of a conversation: its prompt, and the answers to remember.

    Attributes:
        conversation: the conversation to extend by the answers; None if they are not
            remembered.
        reasoning_parser: the server's reasoning parser.
        longest: highest length of a prompt that SGLang does not cut.
        stops: the request's stop strings.
        prompt: the prefix and the text after it; None to use the template's prompt.
        metadata: `metadata.prefix` of the response, None to leave it out.
        answers: the messages that a stream has sent so far, by choice.
    """

    conversation: Conversation | None
    reasoning_parser: str | None
    longest: int
    stops: Sequence[str] = ()
    prompt: list[int] | None = None
    metadata: dict[str, Any] | None = None
    answers: dict[int, Answer] = dataclasses.field(default_factory=dict)

    def continue_from(
        self,
        serving: OpenAIServingChat,
        request: ChatCompletionRequest,
        prefix: Prefix,
        rendered: list[int],
        template: template_tail.Template,
    ) -> None:
        """Build the prompt: the prefix, and the text the template writes after it.

        Args:
            rendered: the prompt that the template alone produces.

        Raises:
            ValueError: the prompt is too long, or the text after the prefix cannot be
                found in the template's output.
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
            # The template's end-of-turn token replaces the sampled stop token.
            kept = required[:-1]
        prompt = [*kept, *tail]
        has_media = prompts.has_media(messages)
        found = prompts.find_token_error(
            manager, prompt, f"{prefix.name} with the text after it", has_media
        )
        if found is not None:
            _, error = found
            raise ValueError(error)
        if len(prompt) > self.longest:
            raise ValueError(
                f"{prefix.name} has {len(required)} tokens, {len(prompt)} with the "
                "text after it, but --allow-auto-truncate cuts a prompt after "
                f"{self.longest}."
            )
        if not has_media and images.ranges_of(manager, required):
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
        """Report in `metadata.prefix` why the memory has no prefix for this turn."""
        self.metadata = {"source": "template", "missed": reason}

    def count(self) -> None:
        """Count the turn for the metrics."""
        said = self.metadata
        if said is None:
            return
        if "missed" in said:
            metrics.count(metrics.PREFIX_TURNS, "server", "missed")
            metrics.count_miss(said["missed"])
            return
        metrics.count(metrics.PREFIX_TURNS, said["source"], "continued")
        for name, key in (
            (metrics.REQUIRED_TOKENS, "required"),
            (metrics.KEPT_TOKENS, "kept"),
            (metrics.MATCHED_TOKENS, "template_matched"),
        ):
            metrics.count(name, said["source"], by=said[key])

    def take_in(self, chunk: dict[str, Any], trace: traces.Trace) -> None:
        """Record a chunk of a stream; remember each choice that finishes."""
        for choice in chunk.get("choices") or ():
            index = choice.get("index")
            answer = self.answers.setdefault(index, Answer())
            answer.add(choice.get("delta") or {})
            traced = trace.choices.get(index)
            if traced is not None and choice.get("finish_reason") is not None:
                self.remember(
                    answer,
                    choice["finish_reason"],
                    choice.get("matched_stop"),
                    trace.prefilled,
                    traced.output_ids[: traced.n_received],
                )

    def remember(
        self,
        answer: ChatCompletionMessageGenericParam | ChatMessage | Answer,
        finish_reason: str,
        matched_stop: Any,
        prompt: list[int] | None,
        token_ids: list[int],
    ) -> None:
        """Remember an answer, unless its tokens are not those of its conversation.

        It was aborted, its prompt is unknown or was cut, or a stop string hides the
        last tokens from its text.
        """
        memory = conversations.memory()
        if memory is None or self.conversation is None or prompt is None:
            return
        is_cut = len(prompt) >= self.longest or matched_stop in self.stops
        if finish_reason != "abort" and not is_cut:
            answered = conversations.with_answer(
                self.conversation, answer, self.reasoning_parser
            )
            memory.put(answered, [*prompt, *token_ids])
            metrics.set_to(metrics.MEMORY_BYTES, memory.n_bytes)
            metrics.set_to(metrics.MEMORY_ENTRIES, len(memory))


@wrapping
def continued(
    process: Any,
    self: OpenAIServingChat,
    request: ChatCompletionRequest,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Decorate `_process_messages`: the prompt starts with the tokens of earlier turns.

    The decorated function raises:
        PrefixError: the prefix that the request asks for cannot be used.
        Refused: the same, for a /v1/responses request.
    """

    def make(serving: OpenAIServingChat, one: ChatCompletionRequest) -> Any:
        return process(serving, one, *args, **kwargs)

    exchange = exchanges.current.get()
    response = None if exchange is None else exchange.response
    if exchange is not None and response is not None:
        request._exchange = exchange
        request.required_prefix_token_ids = response.required_prefix_token_ids
        # These two are part of a conversation's identity in the memory.
        request.extra_key = response.extra_key
        request.cache_salt = response.cache_salt
    elif exchange is not None:
        exchanges.of(request).client = exchange.client
    try:
        return _continue(self, request, make)
    except PrefixError as error:
        count_refused(error.source)
        if response is not None:
            raise Refused(str(error)) from error
        raise


def count_refused(source: str) -> None:
    """Count a turn whose prefix is refused."""
    metrics.count(metrics.PREFIX_TURNS, source, "refused")
    metrics.count(metrics.REFUSED_PROMPTS, "prefix")


def _continue(
    serving: OpenAIServingChat, request: ChatCompletionRequest, process: Any
) -> Any:
    """Process the messages of a request, and put the prefix in front of the prompt."""
    manager = serving.tokenizer_manager
    exchange = exchanges.of(request)
    exchange.turn = None
    prefix = _find_asked(manager, request)
    conversation, missed = None, None
    if prefix is None:
        prefix, conversation, missed = _recall(serving, request, exchange)
    if prefix is None and conversation is None:
        return process(serving, request)
    if conversation is not None and _chooses_answer(request, exchange.response):
        conversation = None
    # Copy the request first: rendering changes it.
    as_sent = request.model_copy()
    result = process(serving, request)
    exchange.turn = turn = Turn(
        conversation,
        serving.reasoning_parser,
        manager.max_req_input_len or manager.context_len,
        prompts.flat_stops(request.stop, request.stop_regex),
    )
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
        if prefix.source != "server":
            raise PrefixError(str(error), prefix.source) from error
        turn.miss("unusable")
    if turn.prompt is not None:
        # For multimodal models, SGLang uses `prompt` instead of `prompt_ids`.
        result.prompt = result.prompt_ids = turn.prompt
        if turn.conversation is not None:
            turn.conversation = turn.conversation._replace(written=prefix.written)
    return result


def _chooses_answer(
    request: ChatCompletionRequest, response: ResponsesRequest | None
) -> bool:
    """True if the request can choose the tokens of the answer.

    Such an answer could put these tokens under the text of another client.
    """
    chosen = request.model_dump(include=_CHOOSING)
    formats = [chosen.pop("response_format", None)]
    if response is not None:
        text = response.model_dump(include={"text"}).get("text")
        formats.append((text or {}).get("format"))
    return (
        request.tool_choice not in ("auto", "none")
        or any(chosen.values())
        or any(one and one["type"] != "text" for one in formats)
    )


def _find_asked(
    manager: TokenizerManager, request: ChatCompletionRequest
) -> Prefix | None:
    """Return the prefix that a request asks for, None without one."""
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
                f"{FIELD} ends with an assistant message, but messages has none.",
                "request",
            )
        prefix = Prefix(request.required_prefix_token_ids, FIELD, "request", last)
    if prefix is None:
        return None
    name, ids = prefix.name, prefix.token_ids
    if request_fields.read(request, "input_ids") is not None:
        error = f"{name} cannot be used with input_ids, which are the whole prompt."
    elif manager.server_args.skip_tokenizer_init:
        error = (
            f"{name} needs a tokenizer, but the server runs with --skip-tokenizer-init."
        )
    else:
        has_media = prompts.has_media(request.messages)
        _, error = prompts.find_token_error(manager, ids, name, has_media) or ("", "")
    if error:
        raise PrefixError(error, prefix.source)
    return prefix


def _ids_of(message: Any, field: str, index: int) -> list[Any] | None:
    """Return the token IDs in a field of a message, None if there are none."""
    value = getattr(message, field)
    if value is not None and not isinstance(value, list):
        raise PrefixError(
            f"messages[{index}].{field} must be a list of integers, but is of type "
            f"{type(value).__name__}.",
            "message",
        )
    return value or None


def _recall(
    serving: OpenAIServingChat, request: ChatCompletionRequest, exchange: Exchange
) -> tuple[Prefix | None, Conversation | None, str | None]:
    """Return the remembered prefix of a request, its conversation, and a miss reason.

    The conversation is None if the memory does not apply. The miss reason says why a
    turn with an assistant message was not found.
    """
    memory = conversations.memory()
    if memory is None or request_fields.read(request, "input_ids") is not None:
        return None, None, None
    uses_memory = exchange.uses_memory
    if uses_memory is None:
        uses_memory = request.return_token_ids is not False
    is_answer_given = request.messages[-1].role == "assistant"
    if not uses_memory or exchange.client is None or is_answer_given:
        return None, None, None
    # The image behind a URL may have changed since, and its options with it.
    if prompts.has_media(request.messages):
        return None, None, None
    known, conversation, index = conversations.find(serving, request, exchange.client)
    if known is None:
        return None, conversation, None
    past = memory.get(known)
    if past is None:
        return None, conversation, memory.explain(known)
    ids, name = past.token_ids.tolist(), "what the server remembers"
    return Prefix(ids, name, "server", index, past.written), conversation, None


def record_client(request: ChatCompletionRequest, raw_request: Request | None) -> None:
    """Record which client sent a chat request."""
    exchanges.of(request).client = client_of(raw_request)


def client_of(raw_request: Request | None) -> str | None:
    """Return a digest of the client's key, None if the server remembers nothing.

    All clients without a key are one.
    """
    if conversations.memory() is None:
        return None
    headers = {} if raw_request is None else raw_request.headers
    keys = [headers.get(name) for name in ("authorization", "x-api-key")]
    return remembered.digest(keys).hex()


@wrapping
async def counted(handle: Any, *args: Any, **kwargs: Any) -> Any:
    """Decorate a function that only tokenizes messages: pass on which client asks."""
    raw_request = named(handle, args, kwargs)["raw_request"]
    with exchanges.entered(exchanges.Exchange(client_of(raw_request))):
        return await handle(*args, **kwargs)


def prepare(request: ChatCompletionRequest, adapted: GenerateReqInput) -> None:
    """Pass the turn's prompt to the engine; request the token IDs to remember."""
    turn = exchanges.of(request).turn
    if turn is None:
        return
    if turn.prompt is not None:
        adapted.text, adapted.input_ids = None, turn.prompt
    if turn.conversation is not None:
        adapted.return_prompt_token_ids = True


@wrapping
def whole(
    build: Any,
    self: OpenAIServingChat,
    request: ChatCompletionRequest,
    ret: list[dict[str, Any]],
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Decorate `_build_chat_response`: add `metadata.prefix`, remember the answer."""
    response = build(self, request, ret, *args, **kwargs)
    turn = exchanges.of(request).turn
    if turn is None or not hasattr(response, "choices"):
        return response
    turn.count()
    if turn.metadata is not None:
        response.metadata = {**(response.metadata or {}), "prefix": turn.metadata}
    for choice, item in zip(response.choices, ret, strict=True):
        turn.remember(
            choice.message,
            choice.finish_reason,
            choice.matched_stop,
            item.get("prompt_token_ids"),
            item["output_ids"],
        )
    return response


@wrapping
def streamed(
    generate: Any,
    self: OpenAIServingChat,
    adapted_request: GenerateReqInput,
    request: ChatCompletionRequest,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Decorate `_generate_chat_stream`: add `metadata.prefix`, remember the answer."""
    exchange = exchanges.of(request)
    turn, trace = exchange.turn, exchange.trace
    if turn is None:
        return generate(self, adapted_request, request, *args, **kwargs)
    turn.count()
    metadata = turn.metadata
    if trace is None:
        trace = exchange.trace = traces.Trace(traces.is_incremental(self))
    elif metadata is not None and not isinstance(trace, traces.EndTrace):
        # A token ID trace writes the metadata of the first chunk itself.
        trace.metadata, metadata = {"prefix": metadata}, None
    lines = generate(self, adapted_request, request, *args, **kwargs)
    if metadata is None and turn.conversation is None:
        return lines

    def follow(text: str) -> str:
        """Record a chunk, and add the metadata to the first."""
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

    return traces.rewrite(self, lines, follow)


def ask_chat(
    anthropic_request: AnthropicMessagesRequest, chat_request: ChatCompletionRequest
) -> None:
    """Copy the prefix fields of a /v1/messages request to its chat request."""
    chat_request.required_prefix_token_ids = anthropic_request.required_prefix_token_ids
    uses_memory = anthropic_request.return_token_ids is not False
    exchanges.of(chat_request).uses_memory = uses_memory


def add_to_message(
    message: AnthropicMessagesResponse, response: ChatCompletionResponse
) -> None:
    """Copy `metadata.prefix` from the chat response to the message made from it."""
    prefix = (response.metadata or {}).get("prefix")
    if prefix is not None:
        message.metadata = {"prefix": prefix}


@wrapping
def events(generate: Any, *args: Any, **kwargs: Any) -> Any:
    """Decorate the message stream: put `metadata.prefix` on its first event."""
    lines = generate(*args, **kwargs)
    turn = exchanges.of(named(generate, args, kwargs)["processed_request"]).turn
    if turn is None or turn.metadata is None:
        return lines
    metadata = {"prefix": turn.metadata}
    is_first = True

    def add(text: str) -> str:
        nonlocal is_first
        event = streams.parse(text) if is_first else None
        if event is None or event.data.get("type") != "message_start":
            return text
        is_first = False
        event.data["message"]["metadata"] = metadata
        return event.text()

    return streams.rewrite(lines, add, messages.error_events)


def keep_token_ids(messages: list[Any] | None, dumped: list[dict[str, Any]]) -> None:
    """Copy the token IDs of messages to their dumps, which exclude them."""
    for message, data in zip(messages or (), dumped, strict=True):
        if message.role == "assistant":
            for field in ("prompt_token_ids", "generation_token_ids", "token_ids"):
                if (value := getattr(message, field)) is not None:
                    data[field] = value


def with_chat(values: object) -> object:
    """Move the chat fields of a /tokenize request into `chat_request`."""
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
    """Answer /tokenize with the token IDs of a chat request's prompt."""
    from sglang.srt.entrypoints.openai.protocol import TokenizeResponse

    chat: OpenAIServingChat = raw_request.app.state.openai_serving_chat
    adapted: GenerateReqInput
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
    """Return `max_model_len` of /tokenize: the tokenizer's limit, or else the model's.

    If a tokenizer states no limit, transformers reports 10^30, which is beyond 64 bits.
    """
    # Not all of SGLang's tokenizers are those of transformers.
    stated = getattr(serving.tokenizer_manager.tokenizer, "model_max_length", -1)
    if isinstance(stated, int) and stated < 2**63:
        return stated
    length: int = serving.tokenizer_manager.model_config.context_len
    return length
