"""Requests of trainers' clients, and the expressions that read their responses."""

from __future__ import annotations

from typing import Any

import pytest

from agentcore_patches.patches.releases import is_between
from agentcore_verify.scripted_model import TOOLS, line
from agentcore_verify.server import Server
from tests.helpers.asking import CASES, ask
from tests.helpers.endpoints import CHAT, COMPLETIONS, Json, answers, ids_in, post


def chat(name: str, **more: Any) -> Json:
    return {"messages": line(name).messages, "temperature": 0, **more}


@pytest.fixture
def expected(server: Server) -> tuple[list[int], list[int]]:
    """The IDs of prompt and completion of the line `emoji`."""
    answer = ask(server, CASES["emoji"])
    prompt, [choice] = answer.prompt_token_ids, answer.completions
    assert prompt and choice.token_ids
    return list(prompt), list(choice.token_ids)


@pytest.mark.parametrize("name", ["tool", "two_tools", "reasoning_then_tool", "silent"])
def test_miles_gets_content_that_is_not_null(
    server: Server, mode: str, name: str
) -> None:
    templated = post(server, CHAT, **chat(name, tools=list(TOOLS)))
    answer = post(
        server,
        CHAT,
        **chat("plain", tools=list(TOOLS)),
        input_ids=templated["prompt_token_ids"],
        return_meta_info=True,
        logprobs=True,
    )
    choice = answer["choices"][0]
    assert choice["message"]["content"] is not None
    output_token_logprobs = choice["meta_info"]["output_token_logprobs"]
    assert [entry[1] for entry in output_token_logprobs] == choice["token_ids"]
    # The reasoning parser treats all text before </think> as reasoning.
    if name == "reasoning_then_tool" or ("tool" in name and mode != "reasoning"):
        assert choice["message"]["tool_calls"]


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
        [choice] = post(server, CHAT, **chat("silent", **flags))["choices"]
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
@pytest.mark.parametrize("name", ["emoji", "tool", "a completion"])
def test_nemo_gym_and_art_read_the_ids_from_the_logprobs(
    server: Server,
    expected: tuple[list[int], list[int]],
    name: str,
    return_token_ids: bool | None,
    streaming: bool,
) -> None:
    n_top = 2 if streaming else 0
    if name == "a completion":
        path, n_top, token_ids = COMPLETIONS, 2, expected[1]
        request = {"prompt": expected[0], "max_tokens": 700, "temperature": 0}
        request |= {"logprobs": 2}
    else:
        path, request = CHAT, chat(name, tools=list(TOOLS))
        token_ids = ids_in([post(server, CHAT, **request)])
        request |= {"logprobs": True, "top_logprobs": n_top}
    flags = {"return_tokens_as_token_ids": True, "return_token_ids": return_token_ids}
    entries = [
        entry
        for event in answers(server, path, streaming, **request, **flags)
        for choice in event["choices"]
        for entry in named(choice)
    ]
    assert [token for token, _ in entries] == [f"token_id:{i}" for i in token_ids]
    for token, tops in entries:
        assert len(tops) == n_top
        assert path == CHAT or token in tops
        assert all(int(top.removeprefix("token_id:")) < 448 for top in tops)


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("asked", [True, None])
def test_hud_can_read_the_prompt_from_each_choices_first_chunk(
    server: Server,
    expected: tuple[list[int], list[int]],
    n: int,
    asked: bool | None,
    streaming: bool,
) -> None:
    prompt = expected[0] if asked else None
    body = chat("emoji", n=n, return_token_ids=asked)
    seen: set[int] = set()
    for event in answers(server, CHAT, streaming, **body):
        for choice in event["choices"]:
            first = choice["index"] not in seen
            seen.add(choice["index"])
            assert choice.get("prompt_token_ids") == (prompt if first else None)
    assert len(seen) == n
