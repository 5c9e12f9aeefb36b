"""Lands in `entrypoints/anthropic/serving.py`, for the patch `token-ids`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, List, Optional

if TYPE_CHECKING:
    from sglang.srt.entrypoints.anthropic.protocol import AnthropicMessagesResponse
    from sglang.srt.entrypoints.openai.protocol import (
        ChatCompletionResponse,
        ChatCompletionStreamResponse,
    )


class MessageTokenTrace:
    """Token IDs and logprobs of a chat stream, until an event of /v1/messages has them.

    One chunk of the chat stream may become several events, or none.
    """

    def __init__(self) -> None:
        self.prompt_token_ids: Optional[List[int]] = None
        self.token_ids: List[int] = []
        self.token_logprobs: List[float] = []

    def push(self, chunk: ChatCompletionStreamResponse) -> None:
        """Take in what a chunk of the chat stream carries."""
        if chunk.prompt_token_ids is not None:
            self.prompt_token_ids = chunk.prompt_token_ids
        for choice in chunk.choices:
            if choice.token_ids:
                self.token_ids += choice.token_ids
                self.token_logprobs += [
                    entry.logprob for entry in choice.logprobs.content
                ]

    def stamp(self, data: str) -> str:
        """An event's JSON with all that waits; the prompt goes into its message."""
        if self.prompt_token_ids is None and not self.token_ids:
            return data
        event = json.loads(data)
        if self.prompt_token_ids is not None:
            event["message"]["prompt_token_ids"] = self.prompt_token_ids
            self.prompt_token_ids = None
        if self.token_ids:
            event["token_ids"] = self.token_ids
            event["token_logprobs"] = self.token_logprobs
            self.token_ids, self.token_logprobs = [], []
        return json.dumps(event, ensure_ascii=False, separators=(",", ":"))


def _add_token_trace(
    message: AnthropicMessagesResponse, response: ChatCompletionResponse
) -> None:
    """Give a message the token IDs and logprobs of the chat answer it was made from."""
    choice: Any = response.choices[0]
    message.prompt_token_ids = response.prompt_token_ids
    message.token_ids = choice.token_ids
    message.token_logprobs = [entry.logprob for entry in choice.logprobs.content]
