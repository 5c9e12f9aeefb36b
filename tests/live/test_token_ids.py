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
    post,
    refused,
    stream,
)
from tests.helpers.servers import in_one_mode


@pytest.mark.parametrize("name", CASES)
def test_a_stream_equals_a_non_streaming_response(
    server: Server, release: str, name: str
) -> None:
    skip_what_no_grammar_serves(release, name)
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
    for choice in streamed.completions:
        assert choice.pieces[0].raw["delta"]["role"] == "assistant"
        assert choice.pieces[0].token_ids


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


def entries_of(choice: Json) -> tuple[list[str], list[float]]:
    """Return names and logprobs of a choice's entries, of chat's or of a completion's.

    Alternatives must be named by their IDs, too.
    """
    logprobs = choice["logprobs"] or {"content": []}
    if "content" not in logprobs:
        for top in logprobs["top_logprobs"] or ():
            assert all(name.startswith("token_id:") for name in top), top
        return logprobs["tokens"], logprobs["token_logprobs"]
    for entry in logprobs["content"]:
        for top in entry["top_logprobs"]:
            assert int(top["token"].removeprefix("token_id:")) < 448
    names = [entry["token"] for entry in logprobs["content"]]
    return names, [entry["logprob"] for entry in logprobs["content"]]


FLAGS = {"return_token_logprobs": True, "return_tokens_as_token_ids": True}


def flat_of(server: Server, path: str, streaming: bool, body: Json) -> Json:
    """Return the flat logprobs of each choice; check each chunk and its entries."""
    found: Json = defaultdict(list)
    for event in answers(server, path, streaming, **body, **FLAGS):
        for choice in event["choices"]:
            new, ids = choice.get("token_logprobs", []), choice.get("token_ids", [])
            assert len(new) == len(ids), choice
            assert new or "token_logprobs" not in choice
            names, values = entries_of(choice)
            if "logprobs" in body:
                assert (names, values) == ([f"token_id:{i}" for i in ids], new)
            else:
                assert not values
            found[choice["index"]] += new
    return found


@pytest.mark.parametrize("name", FLAT)
def test_flat_logprobs_and_names_equal_those_of_the_entries(
    server: Server, name: str
) -> None:
    body = CASES[name].body()
    flags = {"logprobs": True, "return_tokens_as_token_ids": True}
    chat = post(server, CHAT, **body | flags)["choices"]
    wanted = {choice["index"]: entries_of(choice)[1] for choice in chat}
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
    [choice] = post(server, CHAT, **chat, return_tokens_as_token_ids=True)["choices"]
    wanted = pytest.approx(entries_of(choice)[1], abs=LOGPROB_NOISE)
    for streaming in (False, True):
        found = flat_of(server, COMPLETIONS, streaming, body)
        assert len(found) == options.get("n", 1)
        for values in found.values():
            assert values == wanted
        if "echo" not in options:
            assert flat_of(server, COMPLETIONS, streaming, {**body, "logprobs": 2})


@in_one_mode
def test_flat_logprobs_need_the_ids(server: Server) -> None:
    flags = {"return_token_logprobs": True, "return_token_ids": False}
    for path, ask_it in product((CHAT, COMPLETIONS), (post, stream)):
        with refused("return_token_logprobs", "return_token_ids"):
            body = {"prompt": "x"} if path == COMPLETIONS else CASES["plain"].body()
            ask_it(server, path, **body, **flags)
