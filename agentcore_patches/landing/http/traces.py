"""Token IDs of streams: recorded from the engine's outputs, written on outgoing lines.

In between, SGLang's own code turns these outputs into chunks. It holds text back,
such as part of a word or half a tool call, so some tokens get no chunk. A `Trace` keeps
token IDs and logprobs until the next line of their choice is sent, whatever that holds.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import orjson

from .. import release
from ..shared.decorators import wrapping
from . import (
    conversations,
    exchanges,
    logprobs,
    metrics,
    request_fields,
    routed_experts,
    streams,
)
from .choices import Choice

if TYPE_CHECKING:
    from sglang.srt.entrypoints.openai.protocol import (
        ChatCompletionRequest,
        ChatCompletionResponseChoice,
        CompletionRequest,
        CompletionResponseChoice,
    )
    from sglang.srt.entrypoints.openai.serving_base import OpenAIServingBase
    from sglang.srt.entrypoints.openai.serving_chat import OpenAIServingChat
    from sglang.srt.entrypoints.openai.serving_completions import (
        OpenAIServingCompletion,
    )
    from sglang.srt.managers.io_struct import GenerateReqInput

    from .request_fields import ApiRequest

# Quotes inside JSON strings are escaped, so these match only keys.
_ANCHOR = '"logprobs":null,"finish_reason":'
_FINISH = ',"finish_reason":'
_FIRST_INDEX = '"choices":[{"index":'
_NO_CHOICE = '"choices":[],'

# A function from the engine's `meta_info` to extra fields of a finished choice.
AtEnd = Callable[[dict[str, Any]], dict[str, Any]]

# The same of extras: functions of the serving object, the request and `meta_info`.
ENDS: list[Callable[..., dict[str, Any]]] = []


@dataclass(eq=False)
class Trace:
    """Pending token IDs and logprobs of a stream.

    `push` records the engine's outputs; `stamp` writes everything pending on a line.

    Attributes:
        incremental: `output_ids` holds only new IDs (--stream-output).
        write_logprobs: converts the engine's lists for a chunk's tokens to JSON;
            None if the request asks for no `logprobs`.
        is_flat: put `token_logprobs` on each chunk.
        prompt_on_chunk: put the prompt's token IDs on the first chunk.
        prompt_on_choices: put them on the first chunk of each choice.
        n_choices: number of choices, None if unknown.
        at_end: functions that make extra fields of each choice's last chunk.
        required: fail if the engine returns no token IDs, instead of leaving the
            stream as it is.
        quiet: the only choice, once its lines need nothing but new tokens.
        prefilled: the prompt that was prefilled, for the conversation memory.
        prompt_token_ids: the same, until a line has carried it.
        metadata: metadata of the first chunk, besides the weight version.
    """

    incremental: bool
    write_logprobs: Callable[[dict[str, Any]], str] | None = None
    is_flat: bool = False
    prompt_on_chunk: bool = True
    prompt_on_choices: bool = False
    n_choices: int | None = None
    at_end: Sequence[AtEnd] = ()
    required: bool = True
    choices: dict[int, Choice] = field(default_factory=dict)
    last: Choice | None = None
    quiet: Choice | None = None
    prefilled: list[int] | None = None
    prompt_token_ids: list[int] | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    first_version: str | None = None
    known_version: str | None = None
    failed: bool = False

    def __post_init__(self) -> None:
        self.has_logprobs = self.is_flat or self.write_logprobs is not None

    def push(self, index: int, content: dict[str, Any]) -> None:
        """Record an output of the engine for a choice.

        Raises:
            StreamError: the output does not have the fields of SGLang's engine.
        """
        try:
            choice = self.choices.get(index)
            if choice is None:
                if not self.required and "output_ids" not in content:
                    return
                choice = self._start(index, content.get("prompt_token_ids"))
            self.last = choice
            choice.push(content)
        except Exception as error:
            raise streams.stream_error(error) from error

    def _start(self, index: int, prompt_token_ids: list[int] | None) -> Choice:
        if not self.choices:
            if conversations.memory() is not None:
                self.prefilled = prompt_token_ids
            if self.prompt_on_chunk:
                self.prompt_token_ids = prompt_token_ids
        names: Sequence[str] = logprobs.KEYS if self.has_logprobs else ()
        if self.write_logprobs is None:
            names = names[:1]
        self.choices[index] = choice = Choice(index, self.incremental, names)
        if self.prompt_on_choices:
            choice.prompt_token_ids = prompt_token_ids
        return choice

    def stamp(self, line: str) -> str:
        """Write the pending fields of a choice on its event, or on a part of an event.

        Raises:
            ValueError: the engine returned fewer logprobs than tokens, or the stream
                ends while token IDs are pending.
        """
        choice = self.quiet
        if choice is not None:
            # The fast path: most lines need only new tokens.
            start, end = choice.n_sent, choice.n_received
            if start == end:
                return line
            before, key, after = line.rpartition(_FINISH)
            if key and choice.meta_info.get("weight_version") == self.known_version:
                if self.is_flat:
                    rows = choice.lists.get("output_token_logprobs", ())[start:end]
                    if len(rows) != end - start:
                        return self._stamp_event(line)
                    values = _json([row[0] for row in rows])
                    key = f',"token_logprobs":{values}{key}'
                choice.n_sent = end
                if end - start == 1:
                    token_id = choice.output_ids[start]
                    return f'{before},"token_ids":[{token_id}]{key}{after}'
                token_ids = _json(choice.output_ids[start:end])
                return f'{before},"token_ids":{token_ids}{key}{after}'
        return self._stamp_event(line)

    def _stamp_event(self, line: str) -> str:
        if not line.endswith("}\n\n"):
            return self._stamp_parsed(line)
        before, key, after = line.partition(_ANCHOR)
        choice = self._choice_of(before) if key and _ANCHOR not in after else None
        if choice is None:
            return self._stamp_parsed(line)
        on_choice, on_chunk = self._write_pending(choice)
        members: list[str] = []
        if not after.startswith("null"):
            members = _members(_final_fields(self.at_end, choice.meta_info))
        if on_chunk:
            # The last brace of the line closes the chunk.
            after, brace, end_of_line = after.rpartition("}")
            after = f"{after},{on_chunk}{brace}{end_of_line}"
        return "".join((before, on_choice, *members, '"finish_reason":', after))

    def _choice_of(self, before: str) -> Choice | None:
        """Find the choice of a single-choice line by the text before its logprobs."""
        choice = self.last
        if choice is not None and f"{_FIRST_INDEX}{choice.index}," in before:
            return choice
        index = before.partition(_FIRST_INDEX)[2].partition(",")[0]
        return self.choices.get(int(index)) if index.isdecimal() else None

    def _write_pending(self, choice: Choice) -> tuple[str, str]:
        """Return the pending fields of a choice and of its chunk, as JSON members."""
        is_first = choice.n_sent == 0
        token_ids, lists = choice.take()
        written, new = "null", ""
        if token_ids:
            if self.write_logprobs is not None:
                # Those of the prompt come with the first ones of the completion.
                lists = {**choice.meta_info, **lists} if is_first else lists
                written = self.write_logprobs(lists)
            new = f'"token_ids":{_json(token_ids)},'
            if self.is_flat:
                new += f'"token_logprobs":{_json(logprobs.flat(lists))},'
        on_choice = f'"logprobs":{written},{new}'
        version = choice.meta_info.get("weight_version")
        is_known = version is None or version == self.known_version
        is_quiet = is_known and not self.metadata
        if is_quiet and self.prompt_token_ids is choice.prompt_token_ids is None:
            has_only_ids = self.write_logprobs is None and not self.at_end
            if self.n_choices == 1 and has_only_ids:
                self.quiet = choice
            return on_choice, ""
        if choice.prompt_token_ids is not None:
            on_choice += f'"prompt_token_ids":{_json(choice.prompt_token_ids)},'
            choice.prompt_token_ids = None
        on_chunk = []
        if self.prompt_token_ids is not None:
            on_chunk.append(f'"prompt_token_ids":{_json(self.prompt_token_ids)}')
            self.prompt_token_ids = None
        if self.metadata:
            of_version = {} if version is None else {"weight_version": version}
            on_chunk.append(f'"metadata":{_json({**of_version, **self.metadata})}')
            self.first_version = self.known_version = version
            self.metadata = {}
        elif not is_known and (token_ids or self.first_version is None):
            # `known_version` is set only while chunks repeat the first version.
            if self.first_version is None:
                self.first_version = version
            self.known_version = version if version == self.first_version else None
            on_chunk.append(f'"metadata":{_json({"weight_version": version})}')
        return on_choice, ",".join(on_chunk)

    def _stamp_parsed(self, line: str) -> str:
        """Stamp a line with no or several choices, or in another JSON style."""
        if line.startswith("data:") and line[len("data:") :].strip() == "[DONE]":
            self.end()
            return line
        # Such a line may hold megabytes of routed experts: do not parse it.
        if _NO_CHOICE in line:
            return line
        event = streams.parse(line)
        if event is None or not isinstance(event.data.get("choices"), list):
            # Errors and comments stay as they are.
            self.failed = self.failed or '"error"' in line
            return line
        chunk = event.data
        is_changed = False
        for part in chunk["choices"]:
            choice = self.choices.get(part.get("index"))
            if choice is None:
                continue
            if self.at_end and part.get("finish_reason"):
                part.update(_final_fields(self.at_end, choice.meta_info))
                is_changed = True
            if self._waits(choice):
                on_choice, on_chunk = self._write_pending(choice)
                taken = orjson.loads(f"{{{on_choice[:-1]}}}")
                if self.write_logprobs is None:
                    del taken["logprobs"]
                part.update(taken)
                chunk.update(orjson.loads(f"{{{on_chunk}}}"))
                is_changed = True
        return event.text() if is_changed else line

    def _waits(self, choice: Choice) -> bool:
        return choice.n_sent != choice.n_received or (
            self.prompt_token_ids is not None or choice.prompt_token_ids is not None
        )

    def end(self) -> None:
        """Raise ValueError if token IDs are pending at the end of the stream."""
        waiting = [
            choice.index
            for choice in self.choices.values()
            if choice.n_sent != choice.n_received
        ]
        if waiting and not self.failed:
            raise ValueError(
                f"The stream ended before all token IDs of choice {waiting[0]} were "
                "sent: none of its last lines had a place for them."
            )


class EndTrace(Trace):
    """Adds the end-of-choice fields to a stream that is otherwise left alone.

    Its stream may end anywhere: nothing calls `end`.
    """

    def stamp(self, line: str) -> str:
        """Add the extra fields of each choice that finishes on this line."""
        return self._stamp_parsed(line) if '"finish_reason":"' in line else line

    def _waits(self, choice: Choice) -> bool:
        return False


class EventTrace(Trace):
    """Pending token IDs and logprobs of one choice, for events that are not of chat."""

    def __init__(
        self, incremental: bool, has_logprobs: bool = True, has_prompt: bool = True
    ):
        super().__init__(incremental, prompt_on_chunk=has_prompt)
        self.has_logprobs = has_logprobs

    @property
    def finish_reason(self) -> dict[str, Any]:
        """The engine's finish reason, empty before the choice has finished."""
        return (self.last.meta_info.get("finish_reason") if self.last else None) or {}

    def is_rejected(self) -> bool:
        """True if SGLang reports the last output as an error: it is no answer."""
        return bool(self.finish_reason.get("status_code"))

    def is_pending(self) -> bool:
        """True if no event has carried the last token IDs."""
        return self.last is not None and self.last.n_sent != self.last.n_received

    def take(self) -> dict[str, Any]:
        """Return the pending IDs and logprobs as fields of an event.

        Raises:
            ValueError: the engine returned fewer logprobs than tokens.
        """
        if self.last is None or not self.is_pending():
            return {}
        token_ids, lists = self.last.take()
        return {"token_ids": token_ids, "token_logprobs": logprobs.flat(lists)}


@wrapping
def chat(
    generate: Any,
    self: OpenAIServingChat,
    adapted_request: GenerateReqInput,
    request: ChatCompletionRequest,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Decorate the chat stream: add token IDs and logprobs.

    `return_token_ids: false` leaves the stream as it is.
    """
    exchange = exchanges.of(request)
    if isinstance(exchange.trace, EventTrace):
        # The events that /v1/messages makes of the chunks carry the IDs.
        return generate(self, adapted_request, request, *args, **kwargs)
    at_end = _at_end(self, request)
    trace: Trace | None = None
    if request.return_token_ids is not False:
        trace = Trace(
            is_incremental(self),
            logprobs.ChatLogprobs(self).dump if request.logprobs else None,
            is_flat=bool(request.return_token_logprobs),
            prompt_on_chunk=wants_prompt(request),
            prompt_on_choices=bool(request.return_token_ids) and wants_prompt(request),
            n_choices=request.n,
            at_end=at_end,
            required=bool(
                request.return_token_ids or logprobs.come_with_ids(request) or at_end
            ),
        )
        # SGLang's chunks carry only the logprobs of their last step.
        request = request.model_copy(update={"logprobs": False})
    elif at_end:
        trace = EndTrace(is_incremental(self), at_end=at_end)
    exchange.trace = trace
    lines = generate(self, adapted_request, request, *args, **kwargs)
    return _stamped(self, lines, trace, "chat")


@wrapping
def completion(
    generate: Any,
    self: OpenAIServingCompletion,
    adapted_request: GenerateReqInput,
    request: CompletionRequest,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Decorate the completion stream: add token IDs and logprobs if requested."""
    at_end = _at_end(self, request)
    trace: Trace | None = None
    exchange = exchanges.of(request)
    if request.return_token_ids:
        wants_logprobs = request.logprobs is not None
        trace = Trace(
            is_incremental(self),
            logprobs.completion_writer(self, request) if wants_logprobs else None,
            is_flat=bool(request.return_token_logprobs),
            prompt_on_chunk=False,
            prompt_on_choices=wants_prompt(request),
            at_end=at_end,
        )
        # SGLang's logprobs may be ahead of the text.
        without = {"logprobs": None, "return_token_ids": False}
        request = request.model_copy(update=without)
    elif at_end:
        trace = EndTrace(is_incremental(self), at_end=at_end)
    exchange.trace = trace
    lines = generate(self, adapted_request, request, *args, **kwargs)
    return _stamped(self, lines, trace, "completions")


def _at_end(serving: OpenAIServingBase, request: ApiRequest) -> list[AtEnd]:
    """Return the functions that make the extra fields of a finished choice.

    A stream has these fields on the last chunk of a choice.
    """
    wanted: list[AtEnd] = []
    if request.return_token_ids:
        wanted += [partial(end, serving, request) for end in ENDS]
    if request_fields.read(request, "return_weight_versions"):
        wanted.append(lambda info: {"weight_versions": info.get("weight_versions", [])})
    if routed_experts.is_wanted(request):
        wanted.append(partial(routed_experts.choice_fields, serving, request))
    return wanted


def _final_fields(at_end: Sequence[AtEnd], meta_info: dict[str, Any]) -> dict[str, Any]:
    """Make the extra fields of a finished choice."""
    return {name: value for make in at_end for name, value in make(meta_info).items()}


def _stamped(
    serving: OpenAIServingBase, lines: Any, trace: Trace | None, endpoint: str
) -> Any:
    """Stamp each line of a stream; without a trace, the stream stays as it is."""
    if trace is None:
        return lines
    at_end = None if isinstance(trace, EndTrace) else partial(end, trace, endpoint)
    return rewrite(serving, lines, trace.stamp, at_end)


def is_incremental(serving: OpenAIServingBase) -> bool:
    """True if the engine's chunks hold only new token IDs (--stream-output)."""
    return bool(attrgetter(release.STREAM_OUTPUT)(serving.tokenizer_manager))


def wants_prompt(request: Any) -> bool:
    """True unless a request of the API leaves out the prompt's token IDs."""
    return request_fields.read(request, "return_prompt_token_ids") is not False


def get_prompt_token_ids(
    request: ApiRequest, ret_item: dict[str, Any]
) -> list[int] | None:
    """Return the prompt's token IDs of a non-streaming response, None to omit them."""
    if request.return_token_ids is False or not wants_prompt(request):
        return None
    return ret_item.get("prompt_token_ids")


def ask(
    serving: OpenAIServingBase, request: ApiRequest, adapted_request: GenerateReqInput
) -> None:
    """Ask the engine for what a response of chat or completions needs."""
    is_chat = hasattr(request, "messages")
    if logprobs.has_ids(request) or (is_chat and request.return_prompt_token_ids):
        adapted_request.return_prompt_token_ids = True
    logprobs.ask(request, adapted_request)
    routed_experts.ask(serving, request, adapted_request)


def add_to_chat(
    serving: OpenAIServingChat,
    choice: ChatCompletionResponseChoice,
    request: ChatCompletionRequest,
    ret_item: dict[str, Any],
) -> None:
    """Add the requested fields to a choice of a non-streaming chat response."""
    add_to_completion(serving, choice, request, ret_item)
    if request.return_prompt_token_ids:
        choice.prompt_token_ids = ret_item.get("prompt_token_ids")
    if request.return_meta_info:
        choice.meta_info = ret_item["meta_info"]
    # Trainers reject null; later releases have none.
    is_token_in = request.input_ids is not None
    if request.return_token_ids or request.return_meta_info or is_token_in:
        choice.message.content = choice.message.content or ""


def add_to_completion(
    serving: OpenAIServingBase,
    choice: ChatCompletionResponseChoice | CompletionResponseChoice,
    request: ApiRequest,
    ret_item: dict[str, Any],
) -> None:
    """Add the requested fields to a choice, of chat or of a completion.

    Raises:
        KeyError: the request asks for token IDs, and the engine returned none.
    """
    meta_info = ret_item["meta_info"]
    if request.return_token_ids:
        choice.token_ids = ret_item["output_ids"]
        choice.prompt_token_ids = get_prompt_token_ids(request, ret_item)
    elif logprobs.has_ids(request):
        choice.token_ids = ret_item.get("output_ids")
    if request.return_token_logprobs:
        choice.token_logprobs = logprobs.flat(meta_info)
    fields = _final_fields(_at_end(serving, request), meta_info)
    for name, value in fields.items():
        setattr(choice, name, value)


def end(trace: Trace, endpoint: str) -> None:
    """End the trace of a stream, and count the answer."""
    trace.end()
    count(trace, endpoint)


def count(trace: Trace, endpoint: str, mode: str = "streamed") -> None:
    """Count an answer whose token IDs were sent."""
    if trace.choices and not trace.failed:
        metrics.count(metrics.TRACED_ANSWERS, endpoint, mode)


def rewrite(
    serving: OpenAIServingBase,
    lines: Any,
    change: Callable[[str], str],
    end: Callable[[], None] | None = None,
) -> AsyncIterator[str | bytes]:
    """Rewrite a stream of chat or completions; an error ends it like SGLang's own."""

    def error_events(message: str) -> list[str]:
        error = serving.create_streaming_error_response(message)
        return [f"data: {error}\n\n", "data: [DONE]\n\n"]

    raise_first = release.FIRST_LINE_BEFORE_STATUS
    return streams.rewrite(lines, change, error_events, end, raise_first)


def _members(fields: dict[str, Any]) -> list[str]:
    """Write fields as JSON members, each with its comma, in pieces.

    Routed experts may take megabytes, and each copy costs time. Their base64 needs no
    escaping.
    """
    pieces: list[str] = []
    for name, value in fields.items():
        if name == "routed_experts":
            pieces += (f'"{name}":"', value, '",')
        else:
            pieces.append(f'"{name}":{orjson.dumps(value).decode()},')
    return pieces


def _json(value: Any) -> str:
    if type(value) is list and len(value) == 1:
        return f"[{value[0]}]"
    text: bytes = orjson.dumps(value)
    return text.decode()
