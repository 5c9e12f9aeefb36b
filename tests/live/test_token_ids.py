"""Token IDs of chat completions: the same, streaming or not, in every mode."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer

from agentcore_verify import client
from agentcore_verify.scripted_model import STOP_WORD, line
from agentcore_verify.server import Server
from tests.helpers.asking import (
    CASES,
    ask,
    assert_equal,
    assert_whole,
    skip_what_no_grammar_serves,
)
from tests.helpers.servers import Trees


@pytest.mark.parametrize("name", CASES)
def test_a_stream_gives_what_a_whole_answer_gives(server: Server, name: str) -> None:
    skip_what_no_grammar_serves(server, name)
    case = CASES[name]
    whole = ask(server, case)
    streamed = ask(server, case, stream=True)
    assert_whole(whole)
    assert_whole(streamed)
    assert_equal(streamed, whole)
    assert whole.usage is not None and whole.prompt_token_ids is not None
    assert len(whole.prompt_token_ids) == whole.usage["prompt_tokens"]
    n_generated = sum(len(choice.token_ids or ()) for choice in whole.completions)
    assert n_generated == whole.usage["completion_tokens"]
    assert len(whole.completions) == case.n


@pytest.mark.parametrize("name", CASES)
def test_a_line_of_one_choice_is_stamped_as_text(
    server: Server, trees: Trees, name: str
) -> None:
    skip_what_no_grammar_serves(server, name)
    trees.parsed.write_text("")
    ask(server, CASES[name], stream=True)
    lines = trees.parsed.read_text().split("\n\n")
    assert lines.pop() == ""
    assert lines.pop() == "data: [DONE]"
    assert [line for line in lines if '"choices":[]' not in line] == []


@pytest.mark.parametrize("name", ["plain", "emoji", "cjk", "long", "two_tools"])
def test_the_ids_are_those_of_the_text(
    server: Server, tokenizer: Tokenizer, name: str
) -> None:
    answer = ask(server, CASES["plain"], messages=line(name).messages)
    [choice] = answer.completions
    *said, last = choice.token_ids or ()
    assert tokenizer.decode(said) == line(name).text
    assert tokenizer.id_to_token(last) == "<|im_end|>"


@pytest.mark.parametrize("name", ["emoji", "cjk", "two_tools"])
def test_no_text_is_ahead_of_its_ids(
    server: Server, mode: str, tokenizer: Tokenizer, name: str
) -> None:
    if (mode, name) == ("stream-interval", "cjk"):
        pytest.skip(
            "v0.5.9 itself says a character twice when four bytes arrive at once"
        )
    answer = ask(server, CASES["plain"], messages=line(name).messages, stream=True)
    ids: list[int] = []
    text = ""
    for piece in answer.completions[0].pieces:
        ids += piece.token_ids or ()
        text += piece.reasoning_content + piece.content
        assert tokenizer.decode(ids).startswith(text)
    assert text == line(name).text


def test_the_parser_sees_tool_calls(server: Server) -> None:
    """Streaming, v0.5.9 itself loses a second call that comes in one piece."""
    for stream in (False, True):
        answer = ask(server, CASES["reasoning, then a tool call"], stream=stream)
        [choice] = answer.completions
        assert [call.name for call in choice.tool_calls] == ["get_weather"]
        assert choice.finish_reason == "tool_calls"


def test_a_stop_string_ends_the_ids(server: Server, tokenizer: Tokenizer) -> None:
    [choice] = ask(server, CASES["a stop string"], stream=True).completions
    text = tokenizer.decode(list(choice.token_ids or ()))
    assert text.rstrip().endswith(STOP_WORD)
    assert choice.finish_reason == "stop"


def test_without_logprobs_the_ids_are_the_same(server: Server) -> None:
    case = CASES["two tool calls"]
    whole = client.ask(server.base_url, **case.body())
    streamed = client.ask(server.base_url, **case.body(stream=True))
    assert streamed.completions[0].token_ids == whole.completions[0].token_ids
    assert streamed.completions[0].logprobs is None
    assert streamed.prompt_positions == (0,)


def test_the_first_chunk_carries_the_first_token(server: Server) -> None:
    answer = ask(server, CASES["emoji"], stream=True)
    first = answer.completions[0].pieces[0]
    assert first.raw["delta"]["role"] == "assistant"
    assert first.token_ids
