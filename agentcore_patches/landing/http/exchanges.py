"""One request to the API and its answer, as the modules of this package share it.

/v1/messages and /v1/responses convert their requests to chat requests. The chat request
holds the object; while a response is created, or the tokens of messages are counted,
`current` holds it as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sglang.srt.entrypoints.openai.protocol import ResponsesRequest

    from .prefix import Turn
    from .traces import EventTrace


@dataclass
class Exchange:
    """One request and its answer.

    Attributes:
        client: identifies the client that sent the request; None if it is not known,
            and the server's memory is not used.
        response: the /v1/responses request that is converted to chat, if it is one.
        trace: records the engine's results for the events of /v1/messages and
            /v1/responses, None if they are not needed.
        uses_memory: whether the server may remember the conversation; None if chat's
            `return_token_ids` decides.
        turn: turn of the conversation, None without prefix and memory.
    """

    client: str | None = None
    response: ResponsesRequest | None = None
    trace: EventTrace | None = None
    uses_memory: bool | None = None
    turn: Turn | None = None


# The exchange whose chat request does not exist yet.
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
    found = getattr(request, "_exchange", None)
    return found if isinstance(found, Exchange) else Exchange()
