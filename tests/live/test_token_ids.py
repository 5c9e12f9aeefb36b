"""Token IDs of chat completions: equal with and without streaming, in every mode."""

from __future__ import annotations

import pytest

from agentcore_patches.patches.releases import is_between
from agentcore_verify.server import Server
from tests.helpers.asking import (
    CASES,
    ask,
    assert_equal,
    assert_whole,
    skip_what_no_grammar_serves,
)
from tests.helpers.endpoints import CHAT, COMPLETIONS, Json, answers, ids_in, post
from tests.helpers.servers import Switches, in_one_mode


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


@in_one_mode
def test_content_is_empty_rather_than_null_only_on_request(
    server: Server, release: str
) -> None:
    for flags, content in (
        ({"return_token_ids": True}, ""),
        ({"return_meta_info": True}, ""),
        ({}, None),
        ({"return_token_ids": None}, None),
        ({"return_token_ids": False}, None),
    ):
        if is_between(release, "0.5.13", ""):
            content = ""  # SGLang's own field.
        [choice] = post(server, CHAT, **CASES["nothing said"].body(**flags))["choices"]
        assert choice["message"]["content"] == content, flags


def named(choice: Json) -> list[tuple[str, list[str]]]:
    """Return the token of each entry of the logprobs, and its alternatives."""
    logprobs = choice["logprobs"] or {"content": []}
    if "content" not in logprobs:
        tops = map(list, logprobs["top_logprobs"])
        return [*zip(logprobs["tokens"], tops, strict=True)]
    return [
        (entry["token"], [top["token"] for top in entry["top_logprobs"]])
        for entry in logprobs["content"]
    ]


# Without token IDs, SGLang's streams drop logprobs.
@pytest.mark.parametrize(
    ("streaming", "return_token_ids"),
    [(False, None), (False, True), (False, False), (True, None), (True, True)],
)
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_tokens_can_be_named_by_their_ids(
    server: Server, path: str, return_token_ids: bool | None, streaming: bool
) -> None:
    case = CASES["one tool call"]
    chat = post(server, CHAT, **case.body())
    body = case.body(logprobs=True, top_logprobs=2)
    if path == COMPLETIONS:
        body = {"prompt": chat["prompt_token_ids"], "max_tokens": 700, "temperature": 0}
        body |= {"logprobs": 2}
    flags = {"return_tokens_as_token_ids": True, "return_token_ids": return_token_ids}
    entries = [
        entry
        for event in answers(server, path, streaming, **body, **flags)
        for choice in event["choices"]
        for entry in named(choice)
    ]
    assert [token for token, _ in entries] == [f"token_id:{i}" for i in ids_in([chat])]
    for token, tops in entries:
        assert len(tops) == 2
        assert path == CHAT or token in tops
        assert all(int(top.removeprefix("token_id:")) < 448 for top in tops)


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("asked", [True, None])
def test_each_choices_first_chunk_has_the_prompt_on_request(
    server: Server, asked: bool | None, streaming: bool
) -> None:
    case = CASES["n = 2"]
    prompt = post(server, CHAT, **case.body())["prompt_token_ids"] if asked else None
    seen: set[int] = set()
    for event in answers(server, CHAT, streaming, **case.body(return_token_ids=asked)):
        for choice in event["choices"]:
            is_first = choice["index"] not in seen
            seen.add(choice["index"])
            assert choice.get("prompt_token_ids") == (prompt if is_first else None)
    assert seen == {0, 1}
