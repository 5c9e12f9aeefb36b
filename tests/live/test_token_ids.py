"""Token IDs of chat completions: equal with and without streaming, in every mode."""

from __future__ import annotations

from collections import defaultdict
from itertools import product

import pytest

from agentcore_patches.patches.releases import is_between
from agentcore_verify.server import Server
from tests.helpers.asking import (
    CASES,
    LOGPROB_NOISE,
    ask,
    assert_equal,
    assert_whole,
    skip_what_no_grammar_serves,
)
from tests.helpers.endpoints import (
    CHAT,
    COMPLETIONS,
    Json,
    answers,
    ids_in,
    post,
    refused,
    stream,
)
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


FLAT = (
    *("plain", "nothing said", "emoji", "reasoning, then a tool call"),
    *("two tool calls", "stop by length inside a character", "a stop string"),
    *("n = 2 with tools", "top_logprobs"),
)
"""Cases in which text is sent at once, or held back, or never sent."""


def values_of(choice: Json) -> list[float]:
    """Return the logprobs of a choice's entries, of chat's or of a completion's."""
    entries = choice["logprobs"] or {"content": []}
    if "content" not in entries:
        return [*entries["token_logprobs"]]
    return [entry["logprob"] for entry in entries["content"]]


def flat_of(server: Server, path: str, streaming: bool, body: Json) -> Json:
    """Return the flat logprobs of each choice; check each chunk."""
    found: Json = defaultdict(list)
    for event in answers(server, path, streaming, **body, return_token_logprobs=True):
        for choice in event["choices"]:
            new = choice.get("token_logprobs", [])
            assert len(new) == len(choice.get("token_ids", [])), choice
            assert new or "token_logprobs" not in choice
            asked = "logprobs" in body
            assert values_of(choice) == (new if asked else []), choice
            found[choice["index"]] += new
    return found


@pytest.mark.parametrize("name", FLAT)
def test_flat_logprobs_equal_those_of_the_entries(server: Server, name: str) -> None:
    body = CASES[name].body()
    chat = post(server, CHAT, **body | {"logprobs": True})["choices"]
    wanted = {choice["index"]: values_of(choice) for choice in chat}
    for streaming, asked in product((False, True), (False, True)):
        options = {"logprobs": True} if asked else {}
        found = flat_of(server, CHAT, streaming, body | options)
        assert found.keys() == wanted.keys()
        for index, values in found.items():
            assert values == pytest.approx(wanted[index], abs=LOGPROB_NOISE)


@pytest.mark.parametrize("options", [{}, {"n": 2}, {"echo": True}], ids=str)
def test_flat_logprobs_of_a_completion_equal_its_own(
    server: Server, options: Json
) -> None:
    prompt = post(server, CHAT, **CASES["emoji"].body())["prompt_token_ids"]
    body = {"prompt": prompt, "max_tokens": 60, "temperature": 0, **options}
    chat = {**CASES["emoji"].body(logprobs=True), "max_tokens": 60}
    [choice] = post(server, CHAT, **chat)["choices"]
    for streaming in (False, True):
        found = flat_of(server, COMPLETIONS, streaming, body)
        assert len(found) == options.get("n", 1)
        for values in found.values():
            assert values == pytest.approx(values_of(choice), abs=LOGPROB_NOISE)
        if "echo" not in options:
            assert flat_of(server, COMPLETIONS, streaming, {**body, "logprobs": 0})


@in_one_mode
def test_flat_logprobs_need_the_ids(server: Server) -> None:
    flags = {"return_token_logprobs": True, "return_token_ids": False}
    for path, ask_it in product((CHAT, COMPLETIONS), (post, stream)):
        with refused("return_token_logprobs", "return_token_ids"):
            body = {"prompt": "x"} if path == COMPLETIONS else CASES["plain"].body()
            ask_it(server, path, **body, **flags)
