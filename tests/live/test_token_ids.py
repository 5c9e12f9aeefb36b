"""Token IDs of chat completions: equal with and without streaming, in every mode."""

from __future__ import annotations

import pytest

from agentcore_verify.server import Server
from tests.helpers.asking import (
    CASES,
    ask,
    assert_equal,
    assert_whole,
    skip_what_no_grammar_serves,
)
from tests.helpers.servers import Switches


@pytest.mark.parametrize("name", CASES)
def test_a_stream_equals_a_non_streaming_response(
    server: Server, switches: Switches, release: str, name: str
) -> None:
    skip_what_no_grammar_serves(release, name)
    case = CASES[name]
    whole = ask(server, case)
    switches.parsed.write_text("")
    streamed = ask(server, case, stream=True)
    assert_whole(whole)
    assert_whole(streamed)
    assert_equal(streamed, whole)
    assert whole.usage is not None and whole.prompt_token_ids is not None
    assert len(whole.prompt_token_ids) == whole.usage["prompt_tokens"]
    n_generated = sum(len(choice.token_ids or ()) for choice in whole.completions)
    assert n_generated == whole.usage["completion_tokens"]
    assert len(whole.completions) == case.n
    for choice in streamed.completions:
        assert choice.pieces[0].raw["delta"]["role"] == "assistant"
        assert choice.pieces[0].token_ids
    # Only lines without a choice are parsed; the others are stamped as text.
    *lines, done, rest = switches.parsed.read_text().split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    assert [line for line in lines if '"choices":[]' not in line] == []
