"""Requests of the live tests, and the comparison of two responses."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import pytest

from agentcore_verify import client
from agentcore_verify.client import Answer, Completion
from agentcore_verify.scripted_model import TOOLS, line
from agentcore_verify.server import Server

LOGPROB_NOISE = 1e-3
"""Tolerance for logprobs in float32 on a CPU, from batch to batch; the scripted
model's logprobs are apart by far more from token to token."""


@dataclass(frozen=True)
class Case:
    line: str
    tools: bool = False
    n: int = 1
    options: dict[str, Any] = field(default_factory=dict)

    def body(self, **more: Any) -> dict[str, Any]:
        tools = {"tools": list(TOOLS)} if self.tools else {}
        return {
            "messages": line(self.line).messages,
            "temperature": 0,
            "max_tokens": 700,
            "n": self.n,
            **tools,
            **self.options,
            **more,
        }


CASES = {
    "plain": Case("plain"),
    "nothing said": Case("silent"),
    "emoji": Case("emoji"),
    "CJK": Case("cjk"),
    "two tool calls": Case("two_tools", tools=True),
    "tools, none called": Case("emoji", tools=True),
    "reasoning, then a tool call": Case("reasoning_then_tool", tools=True),
    "long": Case("long"),
    "stop by length": Case("long", options={"max_tokens": 40}),
    "stop by length inside a character": Case("emoji", options={"max_tokens": 9}),
    "n = 2": Case("emoji", n=2),
    "n = 2 with tools": Case("two_tools", tools=True, n=2),
    "top_logprobs": Case("emoji", options={"top_logprobs": 3}),
    "usage on every chunk": Case(
        "two_tools",
        tools=True,
        options={
            "stream_options": {"include_usage": True, "continuous_usage_stats": True}
        },
    ),
}


def ask(server: Server, case: Case, **more: Any) -> Answer:
    return client.ask(server.base_url, **case.body(logprobs=True, **more))


def wait_for_steps(server: Server, n_steps: int) -> None:
    """Wait for some engine steps, in which earlier requests run, too."""
    body = CASES["long"].body(stream=True)
    with closing(client.chat_stream(server.base_url, **body)) as stream:
        for _ in range(n_steps):
            next(stream)


def assert_whole(answer: Answer) -> None:
    """Check: only the first event has prompt IDs, every chunk a logprob per ID."""
    assert answer.errors == ()
    assert answer.prompt_positions == (0,)
    for completion in answer.completions:
        assert completion.finish_reason
        for piece in completion.pieces:
            ids, logprobs = piece.token_ids or (), piece.logprobs or ()
            assert len(logprobs) == len(ids), piece.raw


def assert_equal(streamed: Answer, whole: Answer) -> None:
    assert streamed.prompt_token_ids == whole.prompt_token_ids
    for one, other in zip(streamed.completions, whole.completions, strict=True):
        assert one.token_ids == other.token_ids
        assert one.finish_reason == other.finish_reason
        tokens, values = _logprobs(one)
        wanted, expected = _logprobs(other)
        assert tokens == wanted
        assert values == pytest.approx(expected, abs=LOGPROB_NOISE)


def _logprobs(completion: Completion) -> tuple[list[str], list[float]]:
    """Return the tokens of the logprobs, and all values, of alternatives too."""
    entries = completion.logprobs
    assert entries is not None
    values = [
        one["logprob"] for entry in entries for one in (entry, *entry["top_logprobs"])
    ]
    return [entry["token"] for entry in entries], values
