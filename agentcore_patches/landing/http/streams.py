"""Split streams of server-sent events into events, and rewrite them on the way out.

Forks may write events differently from SGLang: with `\\r\\n`, as bytes, several in one
string, or one in several strings. Text that is not a complete event with a JSON object
is never changed.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, NamedTuple

import orjson

from . import metrics

logger = logging.getLogger(__name__)

_BLANK_LINE = re.compile(r"((?:\r?\n){2})")


class StreamError(ValueError):
    """Failure to add fields to a stream; the message is for the client."""


class Event(NamedTuple):
    """An event whose data is a JSON object.

    Attributes:
        start: the lines before the data.
        data: the JSON object.
        end: the line ends after the data.
    """

    start: str
    data: dict[str, Any]
    end: str

    def text(self) -> str:
        """Write the event."""
        return f"{self.start}data: {orjson.dumps(self.data).decode()}{self.end}"


def events_of(line: str | bytes) -> Sequence[str | bytes]:
    """Split a string of a stream into events, each with its trailing blank line.

    Bytes that start or end inside a character stay as they are.
    """
    if not isinstance(line, str):
        try:
            line = bytes(line).decode()
        except UnicodeDecodeError:
            return (line,)
    parts = _BLANK_LINE.split(line)
    events = [*map("".join, zip(parts[::2], parts[1::2], strict=False))]
    return [*events, parts[-1]] if parts[-1] else events


def parse(event: str) -> Event | None:
    """Parse an event; None if it has no JSON object or is not complete."""
    start, _, data = event.partition("data:")
    text = data.strip()
    if not text.startswith("{"):
        return None
    try:
        parsed = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return Event(start, parsed, data[len(data.rstrip()) :])


async def rewrite(
    lines: AsyncGenerator[Any, None],
    change: Callable[[str], str],
    error_events: Callable[[str], Sequence[str]],
    end: Callable[[], None] | None = None,
    raise_first: bool = False,
) -> AsyncGenerator[str | bytes, None]:
    """Pass each event of a stream through `change`.

    If `change` or `end` raises, the stream ends with error events. An exception of the
    stream itself is SGLang's own, and is raised.

    Args:
        lines: the strings of the stream; it is closed at the end.
        raise_first: raise an error on the first event, so that SGLang handles it.
    """
    is_changing = False
    is_first = True
    try:
        async for line in lines:
            # A string is usually one event, mostly of one line, which is found sooner.
            is_event = type(line) is str and (
                line.find("\n") == len(line) - 2 or line.find("\n\n") == len(line) - 2
            )
            for event in (line,) if is_event else events_of(line):
                is_changing = True
                changed = change(event) if type(event) is str else event
                is_changing = False
                yield changed
                is_first = False
        is_changing = True
        if end is not None:
            end()
    except Exception as error:
        if not (is_changing or isinstance(error, StreamError)):
            raise
        if is_first and raise_first:
            raise
        for event in error_events(str(stream_error(error))):
            yield event
    finally:
        await lines.aclose()


def stream_error(error: Exception) -> StreamError:
    """Log a failure to add fields to a stream, and word it for the client."""
    if isinstance(error, StreamError):
        return error
    logger.error("Failed to add fields to a stream", exc_info=error)
    metrics.count(metrics.STREAM_ERRORS)
    if type(error) is ValueError:
        return StreamError(str(error))
    return StreamError(
        "agentcore-patch failed to add its fields to this stream: "
        f"{type(error).__name__}: {error}. The server's log says where."
    )
