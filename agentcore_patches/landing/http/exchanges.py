"""Everything that landing code remembers of a request, typed.

An `Exchange` belongs to a request of the API, a `Call` to a request for SGLang's
tokenizer manager, which may be a batch, and a `Run` to one prompt or sample that the
engine runs. Each is the attribute `_exchange` of SGLang's object. It starts with an
underscore and is no field, so that no JSON, log or copy field by field contains it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from sglang.srt.entrypoints.openai.protocol import ResponsesRequest
    from sglang.srt.entrypoints.openai.serving_chat import OpenAIServingChat
    from sglang.srt.managers.tokenizer_manager import ReqState

    from .prefix import Turn
    from .request_fields import EngineRequest
    from .responses import Results
    from .traces import Trace

_NAME = "_exchange"


@dataclass
class Exchange:
    """One request of the API and its answer.

    Attributes:
        client: identifies the client that sent the request; None if it is not known,
            and the server's memory is not used.
        response: the /v1/responses request that is converted to chat, if it is one.
        trace: records the engine's outputs; None if nothing of them is needed.
        results: the engine's results for a response, None before SGLang asks for them.
        uses_memory: whether the server may remember the conversation; None if chat's
            `return_token_ids` decides.
        turn: turn of the conversation, None without prefix and memory.
        unwritten: serving object and engine output of each choice of a chat response
            whose logprobs orjson will write; None if pydantic writes them.
    """

    client: str | None = None
    response: ResponsesRequest | None = None
    trace: Trace | None = None
    results: Results | None = None
    uses_memory: bool | None = None
    turn: Turn | None = None
    unwritten: list[tuple[OpenAIServingChat, dict[str, Any]]] | None = None


class Prefilled(NamedTuple):
    """The prompt that the engine prefills.

    Attributes:
        n_tokens: number of tokens.
        token_ids: None if the response does not have them, or has had them.
    """

    n_tokens: int
    token_ids: list[int] | None = None


class Started(NamedTuple):
    """A stream that runs before its status is sent: its first output, and the rest."""

    first: dict[str, Any]
    others: AsyncGenerator[Any]


@dataclass(frozen=True)
class Call:
    """One request for the tokenizer manager.

    SGLang copies such a request for each sample of `n` > 1, and a copy has the same
    call. A call is therefore never changed: `note` gives one request another.

    Attributes:
        suffixes: the suffix of the engine's ID by `rid`, while these are reserved.
        prefilled: prompt of a single request, None before it is tokenized.
        started: the stream that was started already, until it is read.
    """

    suffixes: Mapping[str, str] = field(default_factory=dict)
    prefilled: Prefilled | None = None
    started: Started | None = None

    def __reduce__(self) -> Any:
        """Become None when SGLang pickles a request: a reader may be unpatched."""
        return type(None), ()


_UNKNOWN = Call()


@dataclass(slots=True)
class Run:
    """One prompt or sample that the engine runs.

    Attributes:
        engine_rid: ID of the request in the engine, None until it is sent.
        prefilled: the prompt, None if only the request knows it.
        weight_versions: version, first token and end of each span of tokens.
    """

    engine_rid: str | None = None
    prefilled: Prefilled | None = None
    weight_versions: list[list[Any]] = field(default_factory=list)


# For /v1/responses and for counting the tokens of messages, SGLang makes the chat
# request deep inside a function that does not have the exchange: pass it on here.
current: ContextVar[Exchange | None] = ContextVar("agentcore_exchange", default=None)


@contextmanager
def entered(exchange: Exchange) -> Iterator[None]:
    """Make an exchange the current one inside a `with` block."""
    reset = current.set(exchange)
    try:
        yield
    finally:
        current.reset(reset)


def private() -> Any:
    """Declare the private attribute of a request model: each request gets its own."""
    from pydantic import PrivateAttr

    return PrivateAttr(default_factory=Exchange)


def of(request: Any) -> Exchange:
    """Return the exchange of a chat request; an empty one for any other object."""
    # SGLang's unit tests pass mocks, which have every attribute.
    found = getattr(request, _NAME, None)
    return found if isinstance(found, Exchange) else Exchange()


def call_of(obj: EngineRequest) -> Call:
    """Return the call of a request, an empty one if nothing is known of it."""
    return vars(obj).get(_NAME) or _UNKNOWN


def note(obj: EngineRequest, **known: Any) -> None:
    """Replace attributes of a request's call; copies of the request keep theirs."""
    vars(obj)[_NAME] = replace(call_of(obj), **known)


def run_of(state: ReqState) -> Run:
    """Return the run of SGLang's state; a new one if it has none."""
    # Each chunk comes here: a lookup is faster than vars() and get().
    try:
        found: Run = state.__dict__[_NAME]
    except KeyError:
        state.__dict__[_NAME] = found = Run()
    return found
