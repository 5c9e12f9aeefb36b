"""Token-in, token-out chat: prompts and answers as IDs, and rejected requests."""

from __future__ import annotations

import time
from typing import Any

import pytest

from agentcore_verify.server import Server
from tests.helpers import asking
from tests.helpers.asking import CASES, ask
from tests.helpers.endpoints import refused
from tests.helpers.servers import in_one_mode

VOCABULARY = 448
DUMMY: list[dict[str, str]] = [{"role": "user", "content": "-"}]


@pytest.mark.parametrize(
    "name", ["plain", "two tool calls", "tool call required", "a stop string", "n = 2"]
)
@pytest.mark.parametrize("stream", [False, True])
def test_the_prompt_sent_back_as_ids_gives_the_same(
    server: Server, release: str, name: str, stream: bool
) -> None:
    asking.skip_what_no_grammar_serves(release, name)
    templated = ask(server, CASES[name])
    given = ask(
        server,
        CASES[name],
        messages=DUMMY,
        input_ids=list(templated.prompt_token_ids or ()),
        stream=stream,
    )
    asking.assert_whole(given)
    asking.assert_equal(given, templated)
    if not stream:
        for one, other in zip(given.completions, templated.completions, strict=True):
            assert one.content == other.content
            assert one.reasoning_content == other.reasoning_content
            assert [(call.name, call.arguments) for call in one.tool_calls] == [
                (call.name, call.arguments) for call in other.tool_calls
            ]


BAD: dict[str, tuple[Any, str]] = {
    "beyond the vocabulary": ([5, 6, VOCABULARY], "input_ids[2]"),
    "floats": ([5.0, 6.5], "float"),
    "longer than the context": ([5] * 50_000, "50000"),
    "longer than the cache": ([5] * 16_384, "16384"),
}


@in_one_mode
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("what", BAD)
def test_bad_input_ids_are_refused_and_the_server_keeps_running(
    server: Server, what: str, stream: bool
) -> None:
    input_ids, word = BAD[what]
    with refused(word) as refusal:
        ask(server, CASES["plain"], input_ids=input_ids, stream=stream)
    assert len(refusal.value.body) < 2_000
    good = ask(server, CASES["plain"], max_tokens=3)
    assert len(good.completions[0].token_ids or ()) == 3


def test_a_long_good_prompt_is_served(server: Server) -> None:
    started = time.perf_counter()
    input_ids = [0, VOCABULARY - 1, *[5] * 9_000]
    answer = ask(server, CASES["plain"], input_ids=input_ids, max_tokens=2)
    assert answer.prompt_token_ids == tuple(input_ids)
    assert time.perf_counter() - started < 120
