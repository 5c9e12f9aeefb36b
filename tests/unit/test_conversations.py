"""What the server remembers of conversations, and by what it finds them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from agentcore_patches.landing import conversations, release
from agentcore_patches.landing.conversations import Memory

SERVING: Any = SimpleNamespace(
    reasoning_parser=None, _resolve_lora_path=lambda model, path: path
)


def call(name: str, arguments: Any, call_id: str = "a") -> Any:
    return SimpleNamespace(
        id=call_id, function=SimpleNamespace(name=name, arguments=arguments)
    )


def said(role: str, content: Any = "", **more: Any) -> Any:
    fields: dict[str, Any] = {"role": role, "content": content}
    if role == "assistant":
        fields["tool_calls"] = None
    return SimpleNamespace(**{**fields, **more})


class Request(SimpleNamespace):
    """What a conversation's key is made of."""

    def model_dump(self, include: set[str]) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name in include}


def request(*messages: Any, **more: Any) -> Any:
    fields: dict[str, Any] = {
        "messages": list(messages),
        "model": "m",
        "lora_path": None,
        "tools": None,
        "tool_choice": "auto",
        "chat_template_kwargs": None,
        "reasoning_effort": None,
        "extra_key": None,
        "cache_salt": None,
    }
    return Request(**{**fields, **more})


def known(*messages: Any, **more: Any) -> bytes | None:
    return conversations.find_keys(SERVING, request(*messages, **more))[0]


USER = said("user", "hi")
ANSWER = said("assistant", "yes", tool_calls=[call("f", '{"a": 1, "b": 2.5}')])
RESULT = said("tool", "42", tool_call_id="a")
NEXT = said("user", "and?")


def test_an_answer_is_found_by_the_next_turn() -> None:
    _, key, _ = conversations.find_keys(SERVING, request(USER))
    key = conversations.key_with(key, ANSWER, None)
    assert conversations.find_keys(SERVING, request(USER, ANSWER, RESULT))[::2] == (
        key,
        1,
    )


@pytest.mark.parametrize(
    "answer",
    [
        said("assistant", "yes", tool_calls=[call("f", '{"b":2.5,"a":1.0}', "z")]),
        said("assistant", "yes", tool_calls=[call("f", {"a": 1, "b": 2.5})]),
        said("assistant", "yes", tool_calls=ANSWER.tool_calls, reasoning_content="hm"),
        said("assistant", [SimpleNamespace(text="yes")], tool_calls=ANSWER.tool_calls),
    ],
)
def test_spelling_ids_and_reasoning_do_not_count(answer: Any) -> None:
    assert known(USER, answer) == known(USER, ANSWER)


def made(*calls: Any) -> Any:
    """The answer, with other tool calls."""
    return said("assistant", "yes", tool_calls=[*calls])


TOOL = SimpleNamespace(
    function=SimpleNamespace(name="f"),
    model_dump=lambda: {"function": {"name": "f"}},
)


@pytest.mark.parametrize(
    ("messages", "more"),
    [
        ([said("user", "ho"), ANSWER], {}),
        ([said("system", "hi"), ANSWER], {}),
        ([USER, said("assistant", "no", tool_calls=ANSWER.tool_calls)], {}),
        ([USER, said("assistant", "yes")], {}),
        ([USER, made(call("g", '{"a": 1, "b": 2.5}'))], {}),
        ([USER, made(call("f", '{"a": 1}'))], {}),
        ([USER, made(call("f", '{"a": true, "b": 2.5}'))], {}),
        ([USER, made(*ANSWER.tool_calls * 2)], {}),
        ([USER, USER, ANSWER], {}),
        ([USER, ANSWER], {"model": "other"}),
        ([USER, ANSWER], {"lora_path": "adapter"}),
        ([USER, ANSWER], {"chat_template_kwargs": {"enable_thinking": False}}),
        ([USER, ANSWER], {"reasoning_effort": "high"}),
        ([USER, ANSWER], {"cache_salt": "tenant"}),
        ([USER, ANSWER], {"tools": [TOOL]}),
    ],
)
def test_all_that_makes_the_conversation_counts(
    messages: list[Any], more: dict[str, Any]
) -> None:
    assert known(*messages, **more) != known(USER, ANSWER)


def test_reasoning_alone_before_an_answer_does_not_count() -> None:
    reasoning = said("assistant", None, reasoning_content="hm")
    assert known(USER, reasoning, ANSWER, RESULT) == known(USER, ANSWER, RESULT)
    # An answer of its own counts, whatever it says.
    assert known(USER, reasoning, NEXT) not in (None, known(USER, NEXT))
    assert known(USER, reasoning, NEXT, ANSWER) != known(USER, NEXT, ANSWER)
    assert known(USER, ANSWER, ANSWER) != known(USER, ANSWER)


def test_results_belong_to_their_calls_whatever_the_ids() -> None:
    def turns(first: str, second: str, order: Callable[[Any], Any]) -> bytes | None:
        calls = [call("f", "{}", first), call("f", "{}", second)]
        results = [
            said("tool", "1", tool_call_id=first),
            said("tool", "2", tool_call_id=second),
        ]
        asked = said("assistant", "", tool_calls=calls)
        return known(USER, asked, *order(results), said("assistant", "done"))

    assert turns("a", "b", list) == turns("x", "y", list)
    assert turns("a", "b", list) != turns("a", "b", reversed)
    # As many results, the other way round.
    assert turns("a", "b", list) != turns("b", "a", reversed)


def test_a_conversation_cannot_look_like_another_ones_message() -> None:
    inner = json.dumps([["user", "hi"]])
    assert known(said("user", inner), ANSWER) != known(USER, ANSWER)


def test_the_least_recently_used_leave() -> None:
    token_ids = list(range(1000))
    memory = Memory(3 * (4000 + 320))
    for key in (b"a", b"b", b"c"):
        memory.put(key, token_ids)
    assert memory.get(b"a") == token_ids
    memory.put(b"d", token_ids)
    assert memory.get(b"b") is None
    assert len(memory) == 3
    assert memory.n_bytes == memory.max_bytes


def test_what_is_too_large_leaves_the_others_alone() -> None:
    memory = Memory(5000)
    memory.put(b"a", [1, 2])
    memory.put(b"b", [1] * 5000)
    assert memory.get(b"a") == [1, 2]
    assert memory.get(b"b") is None


def test_an_answer_given_twice_is_kept_once() -> None:
    memory = Memory(5000)
    memory.put(b"a", [1, 2])
    memory.put(b"a", [1, 2])
    assert memory.get(b"a") == [1, 2]
    assert memory.n_bytes == 8 + 320


def test_of_two_answers_that_say_the_same_by_other_tokens_none_is_used() -> None:
    memory = Memory(5000)
    for token_ids in ([1, 2], [3], [3], [1, 2]):
        memory.put(b"a", token_ids)
        assert memory.get(b"a") == (token_ids if memory.n_bytes > 320 else None)
    assert memory.n_bytes == 320


def test_arguments_nested_too_deeply_are_taken_as_text() -> None:
    deep = said("assistant", "", tool_calls=[call("f", "[" * 100_000)])
    assert known(USER, deep) == known(USER, deep) != known(USER, ANSWER)


def test_threads_share_a_memory() -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        memory = Memory(50 * 330)

        def use(seed: int) -> None:
            for number in range(3000):
                key = str(number * seed % 97).encode()
                memory.put(key, [1])
                memory.get(key)

        with ThreadPoolExecutor(4) as pool:
            for done in [pool.submit(use, seed) for seed in (1, 3, 5, 7)]:
                done.result()
    finally:
        sys.setswitchinterval(interval)
    assert memory.n_bytes == len(memory) * 324 <= memory.max_bytes


@pytest.mark.parametrize(("value", "megabytes"), [("", 0), ("0", 0), (" 64 ", 64)])
def test_the_variable_says_how_many_megabytes(
    monkeypatch: pytest.MonkeyPatch, value: str, megabytes: int
) -> None:
    monkeypatch.setenv(conversations.VARIABLE, value)
    conversations.memory.cache_clear()
    kept = conversations.memory()
    conversations.memory.cache_clear()
    n_bytes = 0 if kept is None else kept.max_bytes
    assert n_bytes == megabytes * 1_000_000


@pytest.mark.parametrize(
    ("value", "arguments", "said"),
    [
        ("64", {"disaggregation_mode": "decode"}, "--disaggregation-mode is decode"),
        ("64", {"tokenizer_worker_num": 2}, "--tokenizer-worker-num is 2"),
        *(
            (value, {}, "whole number of megabytes")
            for value in ("-1", "1.5", "64MB", "yes", "²")
        ),
    ],
)
def test_what_a_memory_cannot_be_of_stops_the_start(
    monkeypatch: pytest.MonkeyPatch, value: str, arguments: dict[str, Any], said: str
) -> None:
    server = SimpleNamespace(**{"tokenizer_worker_num": 1, **arguments})
    conversations.check_server(server)
    monkeypatch.setenv(conversations.VARIABLE, value)
    with pytest.raises(ValueError, match=said):
        conversations.check_server(server)


def test_a_memory_needs_the_patch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(conversations.VARIABLE, "64")
    monkeypatch.setattr(release, "PATCHES", ("token-ids",))
    with pytest.raises(ValueError, match="the patch prefix is not in place"):
        conversations.check_server(SimpleNamespace(tokenizer_worker_num=1))
