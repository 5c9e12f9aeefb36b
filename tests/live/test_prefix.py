"""Turns whose prompts begin with exactly the tokens of the turns before them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from tokenizers import Tokenizer

from agentcore_patches.errors import ServerError
from agentcore_verify import client
from agentcore_verify.scripted_model import line
from agentcore_verify.server import Server
from tests.helpers.conversing import (
    BAD_PREFIXES,
    QUESTIONS,
    body,
    follow_up,
    ids_of,
    is_sent_back,
    message_of,
    prefix_of,
    turns,
)
from tests.helpers.endpoints import MESSAGES, refused, require_traced
from tests.helpers.servers import Launch, Trees, held
from tests.helpers.waiting import wait_until
from tests.live.conftest import PREFIX_CACHE

USER = {"role": "user", "content": "Say hello."}


@pytest.mark.parametrize("how", ["request", "message"])
@pytest.mark.parametrize("stream", [False, True])
def test_eight_turns_begin_with_the_turns_before(
    server: Server, how: str, stream: bool
) -> None:
    assert_continued(list(turns(server.base_url, how, stream=stream)), how)


def assert_continued(answers: list[client.Answer], how: str) -> None:
    assert len(answers) == len(QUESTIONS)
    assert prefix_of(answers[0]) is None
    assert sum(bool(answer.completions[0].tool_calls) for answer in answers)
    for before, answer in pairwise(answers):
        required = ids_of(before)
        said = prefix_of(answer)
        if said is None and how == "server":
            assert not is_sent_back(before.completions[0])
            continue
        assert said is not None
        assert said["source"] == how
        assert said["required"] == said["kept"] == len(required)
        assert said["template_matched"] <= len(required)
        prompt = list(answer.prompt_token_ids or ())
        assert prompt[: len(required)] == required
        assert len(prompt) > len(required)


def test_the_template_alone_drops_the_reasoning(
    server: Server, tokenizer: Tokenizer
) -> None:
    answers = list(turns(server.base_url, "request", ("reasoning", "plain")))
    said = prefix_of(answers[1])
    assert said is not None
    reasons = answers[0].completions[0].reasoning_content
    assert (said["template_matched"] < said["required"]) == bool(reasons)
    end = tokenizer.decode(
        list(answers[1].prompt_token_ids or ())[said["kept"] - 1 :],
        skip_special_tokens=False,
    )
    assert end == (
        "<|im_end|>\n<|im_start|>user\nSay hello.<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.parametrize("stream", [False, True])
def test_a_message_that_goes_on_is_continued_from_its_own_tokens(
    server: Server, stream: bool
) -> None:
    url = server.base_url
    first = client.ask(url, **body([USER], max_tokens=3))
    messages = [USER, {"role": "assistant", "content": "He"}]
    required = ids_of(first)
    second = client.ask(
        url,
        **body(
            messages,
            required_prefix_token_ids=required,
            continue_final_message=True,
            stream=stream,
        ),
    )
    assert list(second.prompt_token_ids or ()) == required
    whole = client.ask(url, **body([USER]))
    together = [*ids_of(first), *(second.completions[0].token_ids or ())]
    assert together == ids_of(whole)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("asked", "said"),
    [
        *BAD_PREFIXES,
        ({"required_prefix_token_ids": [7], "input_ids": [7]}, "input_ids"),
        ({"required_prefix_token_ids": [7], "messages": [USER]}, "assistant message"),
        (
            {
                "required_prefix_token_ids": [7],
                "messages": [USER, {"role": "assistant", "content": "Hello."}],
            },
            "last message",
        ),
    ],
)
def test_a_bad_prefix_is_refused(
    server: Server, asked: dict[str, Any], said: str, stream: bool
) -> None:
    messages = [USER, {"role": "assistant", "content": "Hello."}, USER]
    named = () if "longer than" in said else ("required_prefix_token_ids",)
    with refused(said, *named):
        client.ask(server.base_url, **body(messages, stream=stream) | asked)
    client.ask(server.base_url, **body([USER]))


@pytest.mark.parametrize(
    ("carried", "named"),
    [
        ({"prompt_token_ids": "7", "token_ids": [7]}, "prompt_token_ids"),
        ({"prompt_token_ids": [7], "token_ids": {"7": 7}}, "token_ids"),
        (
            {"prompt_token_ids": [7], "generation_token_ids": [-1]},
            "prompt_token_ids with its generation_token_ids",
        ),
        ({"prompt_token_ids": [7.0], "token_ids": [7]}, "prompt_token_ids"),
        (
            {"prompt_token_ids": [7], "token_ids": [None]},
            "prompt_token_ids with its token_ids",
        ),
    ],
)
def test_bad_ids_on_a_message_are_refused(
    server: Server, carried: dict[str, Any], named: str
) -> None:
    messages = [USER, {"role": "assistant", "content": "Hello.", **carried}, USER]
    with refused(f"messages[1].{named}"):
        client.ask(server.base_url, **body(messages))


@pytest.mark.parametrize("nothing", [None, []])
def test_null_and_empty_mean_absent(server: Server, nothing: Any) -> None:
    messages = [USER, {"role": "assistant", "content": "Hello."}, USER]
    carried = {"prompt_token_ids": nothing, "token_ids": nothing}
    messages[1] |= carried
    answer = client.ask(
        server.base_url, **body(messages, required_prefix_token_ids=nothing)
    )
    assert prefix_of(answer) is None


def test_several_choices_continue_the_same_prefix(server: Server) -> None:
    first = client.ask(server.base_url, **body([USER], n=2))
    for choice in (0, 1):
        messages = [USER, message_of(first.completions[choice]), USER]
        required = ids_of(first, choice)
        asked = {"required_prefix_token_ids": required, "n": 2}
        for stream in (False, True):
            second = client.ask(
                server.base_url, **body(messages, stream=stream, **asked)
            )
            assert len(second.completions) == 2
            assert list(second.prompt_token_ids or ())[: len(required)] == required


def test_opting_out_of_ids_keeps_the_prefix(server: Server) -> None:
    first = client.ask(server.base_url, **body([USER]))
    messages = [USER, message_of(first.completions[0]), USER]
    asked = {"required_prefix_token_ids": ids_of(first), "return_token_ids": False}
    for stream in (False, True):
        second = client.ask(server.base_url, **body(messages, stream=stream, **asked))
        said = prefix_of(second)
        assert said is not None and said["kept"] == len(ids_of(first))
        assert second.prompt_token_ids is None


def test_tokenize_gives_the_same_ids(server: Server) -> None:
    url = server.base_url
    first, second = turns(url, "request", QUESTIONS[:2])
    [completion] = first.completions
    messages = [
        {"role": "user", "content": line(QUESTIONS[0]).question},
        message_of(completion),
        *follow_up(completion, QUESTIONS[1]),
    ]
    request = body(messages, required_prefix_token_ids=ids_of(first))
    asked = {k: request[k] for k in ("messages", "tools", "required_prefix_token_ids")}
    assert tokenized(url, **asked) == list(second.prompt_token_ids or ())
    del asked["required_prefix_token_ids"]
    messages[1] |= {
        "prompt_token_ids": list(first.prompt_token_ids or ()),
        "token_ids": list(completion.token_ids or ()),
    }
    assert tokenized(url, **asked) == list(second.prompt_token_ids or ())
    with refused():
        tokenized(url, **asked, required_prefix_token_ids=[-1])


def tokenized(url: str, **request: Any) -> list[int]:
    answer = client.post_json(f"{url}/tokenize", {"model": "default", **request})
    assert answer["count"] == len(answer["tokens"])
    token_ids: list[int] = answer["tokens"]
    return token_ids


@pytest.mark.parametrize("stream", [False, True])
def test_a_server_that_remembers_continues_by_itself(
    remembering: Server, stream: bool
) -> None:
    answers = list(turns(remembering.base_url, "server", stream=stream))
    assert_continued(answers, "server")


def test_return_token_ids_false_uses_no_memory(remembering: Server) -> None:
    answers = list(
        turns(remembering.base_url, "server", QUESTIONS[:2], return_token_ids=False)
    )
    assert list(map(prefix_of, answers)) == [None, None]


def test_messages_continue_without_a_field_of_ours(
    remembering: Server, release: str
) -> None:
    require_traced(MESSAGES, release)
    url = remembering.base_url + MESSAGES
    for stream in (False, True):
        asked = {"system": f"streamed: {stream}"}
        user = {"role": "user", "content": line("reasoning").question}
        first = message(url, stream, **asked, messages=[user])
        assert "metadata" not in first
        history = [user, {"role": "assistant", "content": first["content"]}, user]
        second = message(url, stream, **asked, messages=history)
        said = second["metadata"]["prefix"]
        assert said["source"] == "server" and said["kept"] == said["required"]


@pytest.mark.parametrize("stream", [False, True])
def test_messages_take_a_prefix_and_refuse_a_bad_one(
    server: Server, release: str, stream: bool
) -> None:
    require_traced(MESSAGES, release)
    url = server.base_url + MESSAGES
    before = set(held(server))
    first = client.ask(server.base_url, **body([USER], tools=None))
    messages = [USER, {"role": "assistant", "content": "Hello!"}, USER]
    required = ids_of(first)
    second = message(
        url,
        stream,
        messages=messages,
        required_prefix_token_ids=required,
        return_token_ids=True,
    )
    assert second["metadata"]["prefix"]["source"] == "request"
    assert second["prompt_token_ids"][: len(required)] == required
    for bad in ([-1], ["7"], "7", [7] * 40000):
        with refused("required_prefix_token_ids"):
            message(url, stream, messages=messages, required_prefix_token_ids=bad)
    wait_until(lambda: set(held(server)) <= before)


def message(url: str, stream: bool, **asked: Any) -> dict[str, Any]:
    """A message, put together if it is streamed."""
    asked = {"model": "default", "max_tokens": 60, "temperature": 0, **asked}
    if not stream:
        answer: dict[str, Any] = client.post_json(url, asked)
        return answer
    events = list(client.post_stream(url, asked, done=False))
    made: dict[str, Any] = events[0]["message"]
    text = "".join(
        event["delta"].get("text") or ""
        for event in events
        if event["type"] == "content_block_delta"
    )
    return {**made, "content": [{"type": "text", "text": text}]}


@pytest.mark.parametrize("stream", [False, True])
def test_conversations_that_are_alike_do_not_mix(
    remembering: Server, stream: bool
) -> None:
    url = remembering.base_url
    first: dict[str, client.Answer] = {}
    for word in ("amber", "cobalt"):
        asked = [{"role": "system", "content": word}, USER]
        first[word] = client.ask(url, **body(asked, stream=stream))
    for word, answer in first.items():
        system = {"role": "system", "content": word}
        messages = [system, USER, message_of(answer.completions[0]), USER]
        second = client.ask(url, **body(messages, stream=stream))
        required = ids_of(answer)
        assert list(second.prompt_token_ids or ())[: len(required)] == required
        for other in (
            {"tools": None},
            {"model": "another"},
            {"chat_template_kwargs": {"x": 1}},
            {"messages": [system, {"role": "user", "content": "x"}, *messages[2:]]},
        ):
            asked_otherwise = {**body(messages, stream=stream), **other}
            assert prefix_of(client.ask(url, **asked_otherwise)) is None, other


def test_a_server_that_cannot_remember_says_so_at_start(
    trees: Trees, launch: Launch
) -> None:
    for args, value, word in (
        (("--tokenizer-worker-num", "2"), "16", "tokenizer worker"),
        ((), "many", "whole number of megabytes"),
    ):
        refusing = launch(trees.patched, *args, env={PREFIX_CACHE: value})
        with pytest.raises(ServerError, match=word), refusing:
            pass
