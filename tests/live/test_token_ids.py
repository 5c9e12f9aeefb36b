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

# What no check of `verify` asks, which run in each mode, too.
NAMES = (
    *("nothing said", "two tool calls", "tools, none called"),
    *("stop by length inside a character", "n = 2 with tools", "top_logprobs"),
    "usage on every chunk",
)


@pytest.mark.parametrize("name", NAMES)
def test_a_stream_equals_a_non_streaming_response(server: Server, name: str) -> None:
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


@pytest.mark.parametrize("asked", [True, None])
def test_each_choices_first_chunk_has_the_prompt_on_request(
    server: Server, asked: bool | None
) -> None:
    body = CASES["n = 2"].body(return_token_ids=asked)
    prompt = post(server, CHAT, **body)["prompt_token_ids"] if asked else None
    for streaming in (False, True):
        seen: set[int] = set()
        for event in answers(server, CHAT, streaming, **body):
            for choice in event["choices"]:
                is_first = choice["index"] not in seen
                seen.add(choice["index"])
                assert choice.get("prompt_token_ids") == (prompt if is_first else None)
        assert seen == {0, 1}


PROMPT = [5, 6, 7]
FLAT: dict[str, tuple[str, Json]] = {
    name: (CHAT, CASES[name].body())
    for name in ("emoji", "reasoning, then a tool call", "n = 2 with tools")
}
FLAT |= {
    "completion": (COMPLETIONS, {"prompt": PROMPT, "n": 2}),
    "echo": (COMPLETIONS, {"prompt": PROMPT, "echo": True, "max_tokens": 60}),
}
"""An endpoint, and a request that asks for no entries of logprobs."""


def entries_of(choice: Json) -> tuple[list[str], list[float]]:
    """Return names and logprobs of a choice's entries, of chat's or of a completion's.

    Alternatives must be named by their IDs, too.
    """
    logprobs = choice["logprobs"]
    if "content" not in logprobs:
        tops = [name for top in logprobs["top_logprobs"] for name in top]
        names, values = logprobs["tokens"], logprobs["token_logprobs"]
    else:
        entries = logprobs["content"]
        tops = [top["token"] for entry in entries for top in entry["top_logprobs"]]
        names = [entry["token"] for entry in entries]
        values = [entry["logprob"] for entry in entries]
    assert all(name.startswith("token_id:") for name in tops), tops
    return names, values


@pytest.mark.parametrize("name", FLAT)
def test_flat_logprobs_and_names_equal_those_of_the_entries(
    server: Server, name: str
) -> None:
    path, asked = FLAT[name]
    body = {"temperature": 0, "return_token_logprobs": True, **asked}
    body["return_tokens_as_token_ids"] = True
    entries = {"logprobs": 2} if path == COMPLETIONS else {"logprobs": True}
    found: list[dict[int, list[float]]] = []
    for streaming, more in product((False, True), ({}, entries)):
        values: dict[int, list[float]] = defaultdict(list)
        for event in answers(server, path, streaming, **body, **more):
            for choice in event["choices"]:
                new, ids = choice.get("token_logprobs", []), choice.get("token_ids", [])
                assert len(new) == len(ids), choice
                assert new or "token_logprobs" not in choice
                if more and ids and "echo" not in body:
                    named = [f"token_id:{token_id}" for token_id in ids]
                    assert entries_of(choice) == (named, new)
                assert more or not choice["logprobs"]
                values[choice["index"]] += new
        found.append(values)
    for values in found:
        assert values.keys() == found[0].keys()
        for index, wanted in found[0].items():
            assert values[index] == pytest.approx(wanted, abs=LOGPROB_NOISE)


@in_one_mode
def test_flat_logprobs_need_the_ids(server: Server) -> None:
    flags = {"return_token_logprobs": True, "return_token_ids": False}
    for path, ask_it in product((CHAT, COMPLETIONS), (post, stream)):
        with refused("return_token_logprobs", "return_token_ids"):
            body = {"prompt": "x"} if path == COMPLETIONS else CASES["plain"].body()
            ask_it(server, path, **body, **flags)
