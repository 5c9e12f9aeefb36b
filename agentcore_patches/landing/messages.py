"""Token IDs and logprobs of /v1/messages, which SGLang translates from chat answers."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from functools import wraps
from typing import TYPE_CHECKING, Any

import orjson

from . import traces

if TYPE_CHECKING:
    from sglang.srt.entrypoints.anthropic.protocol import AnthropicMessagesResponse
    from sglang.srt.entrypoints.openai.protocol import ChatCompletionResponse


class MessageTrace:
    """Token IDs and logprobs of a chat stream that no event of the message has carried.

    One line of the chat stream may become several events, or none.
    """

    def __init__(self) -> None:
        self.prompt_token_ids: list[int] | None = None
        self.token_ids: list[int] = []
        self.token_logprobs: list[float] = []

    def push(self, line: str) -> None:
        """Take in what a line of the chat stream carries; it has no `data: `."""
        chunk = orjson.loads(line)
        if "prompt_token_ids" in chunk:
            self.prompt_token_ids = chunk["prompt_token_ids"]
        for choice in chunk["choices"]:
            if "token_ids" in choice:
                self.token_ids += choice["token_ids"]
                self.token_logprobs += [
                    entry["logprob"] for entry in choice["logprobs"]["content"]
                ]

    def stamp(self, text: str | bytes) -> str:
        """Events with all that waits; the prompt goes into the message of the first."""
        text = traces.text_of(text)
        if self.prompt_token_ids is None and not self.token_ids:
            return text
        event, end, others = text.partition("\n\n")
        start, data, body = event.partition("data: ")
        if data and end:
            event = f"{start}{data}{self._stamped(orjson.loads(body))}"
        return f"{event}{end}{self.stamp(others) if others else ''}"

    def _stamped(self, event: dict[str, Any]) -> str:
        if self.prompt_token_ids is not None and "message" in event:
            event["message"]["prompt_token_ids"] = self.prompt_token_ids
            self.prompt_token_ids = None
        if self.token_ids:
            event["token_ids"] = self.token_ids
            event["token_logprobs"] = self.token_logprobs
            self.token_ids, self.token_logprobs = [], []
        return orjson.dumps(event).decode()


def events(generate: Any) -> Any:
    """Have the events of a message carry token IDs and logprobs, if asked to."""
    signature = inspect.signature(generate)

    @wraps(generate)
    def stream(*args: Any, **kwargs: Any) -> Any:
        asked = signature.bind(*args, **kwargs).arguments["anthropic_request"]
        if not asked.return_token_ids:
            return generate(*args, **kwargs)
        trace = MessageTrace()
        return _stamped_events(trace, generate(*args, **kwargs, trace=trace))

    return stream


async def _stamped_events(trace: MessageTrace, lines: Any) -> AsyncIterator[str]:
    try:
        async for line in lines:
            yield trace.stamp(line)
        if trace.token_ids:
            error = {
                "type": "error",
                "error": {
                    "type": "api_error",
                    "message": (
                        "The stream ended before all token IDs were sent: none of its "
                        "last events had a place for them."
                    ),
                },
            }
            yield f"event: error\ndata: {orjson.dumps(error).decode()}\n\n"
    finally:
        await lines.aclose()


def add_to_message(
    message: AnthropicMessagesResponse, response: ChatCompletionResponse
) -> None:
    """Give a message the token IDs and logprobs of the chat answer it was made from."""
    choice = response.choices[0]
    message.prompt_token_ids = response.prompt_token_ids
    message.token_ids = choice.token_ids
    message.token_logprobs = [entry.logprob for entry in choice.logprobs.content]
