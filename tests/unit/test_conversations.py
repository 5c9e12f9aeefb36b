"""The server's memory of conversations, and their identity."""

from __future__ import annotations

import gc
import json
import sys
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from agentcore_patches.landing.http import conversations, remembered
from agentcore_patches.landing.http.remembered import Conversation, Memory
from tests.unit.small_server import Model

SERVING: Any = SimpleNamespace(reasoning_parser=None)


def call(name: str, arguments: Any, call_id: str = "a") -> Any:
    return SimpleNamespace(
        id=call_id, function=SimpleNamespace(name=name, arguments=arguments)
    )


def said(role: str, content: Any = "", **more: Any) -> Any:
    fields: dict[str, Any] = {"role": role, "content": content}
    if role == "assistant":
        fields["tool_calls"] = None
    return Model(**{**fields, **more})


def request(*messages: Any, **more: Any) -> Any:
    absent = ("lora_path", "tools", "chat_template_kwargs", "reasoning_effort")
    fields = dict.fromkeys((*absent, "extra_key", "cache_salt"))
    asked = {"messages": [*messages], "model": "m", "tool_choice": "auto"}
    return Model(**{**fields, **asked, **more})


def known(*messages: Any) -> bytes | None:
    found = conversations.find(SERVING, request(*messages), "a")[0]
    return None if found is None else found.parts[-1].digest


def answered(*messages: Any, **more: Any) -> Conversation:
    """Return a conversation whose last message is the answer to the others."""
    *asked, answer = messages
    _, whole, _ = conversations.find(SERVING, request(*asked, **more), "a")
    return conversations.with_answer(whole, answer, None)


def why_missed(memory: Memory, *messages: Any, client: str = "a", **more: Any) -> str:
    """Return why the memory does not find the turn of these messages."""
    found, _, _ = conversations.find(SERVING, request(*messages, **more), client)
    assert found is not None
    assert memory.get(found) is None
    return memory.explain(found)


def calling(name: str, arguments: Any, call_id: str = "a") -> Any:
    """Return an answer with a tool call."""
    called = [call(name, arguments, call_id)]
    return said("assistant", "yes", tool_calls=called)


USER = said("user", "hi")
ANSWER = calling("f", '{"a": 1, "b": 2.5}')
RESULT = said("tool", "42", tool_call_id="a")
NEXT = said("user", "and?")
SYSTEM = said("system", "You code.")
REASONING = said("assistant", None, reasoning_content="hm")
WRONG_RESULT = said("tool", "42", tool_call_id="z")
TOOL = SimpleNamespace(
    function=SimpleNamespace(name="f"),
    model_dump=lambda: {"function": {"name": "f"}},
)

HEADER = "x-anthropic-billing-header: cc_version=2.1.107.3d9; cc_entrypoint=cli; cch="


def text_part(text: str) -> Any:
    part = {"type": "text", "text": text}
    return SimpleNamespace(**part, model_dump=lambda: dict(part))


# Two texts of a system message, and whether they are of one conversation.
SYSTEM_TEXTS: list[tuple[Any, Any, bool]] = [
    (f"{HEADER}74943;\nYou code.", f"{HEADER}00001; more\nYou code.", True),
    (f"{HEADER}74943;\nYou code.", "You code.", True),
    (f"You code.\n{HEADER}1;", f"You code.\n{HEADER}2;", True),
    ([text_part(f"{HEADER}1;"), text_part("You code.")], "You code.", True),
    # What follows the header counts.
    (f"{HEADER}1;\nYou code.", f"{HEADER}1;\nYou write.", False),
    # In the middle of a line, it is not Claude Code's header.
    (f"Send {HEADER}1;", f"Send {HEADER}2;", False),
    ("X-Anthropic-Billing-Header: 1", "X-Anthropic-Billing-Header: 2", False),
]


@pytest.mark.parametrize(
    ("one", "other", "are_equal"),
    [
        ([USER, calling("f", '{"b":2.5,"a":1.0}', "z")], [USER, ANSWER], True),
        ([USER, calling("f", {"a": 1, "b": 2.5})], [USER, ANSWER], True),
        ([USER, Model(**{**vars(ANSWER), "reasoning_content": "hm"})], [USER, ANSWER], True),
        ([USER, Model(**{**vars(ANSWER), "content": [text_part("yes")]})], [USER, ANSWER], True),
        ([USER, Model(**{**vars(ANSWER), "tool_calls": ANSWER.tool_calls * 2})], [USER, ANSWER], False),
        # Arguments nested too deeply are text.
        ([USER, calling("f", "[" * 100_000)], [USER, ANSWER], False),
        ([USER, REASONING, ANSWER, RESULT], [USER, ANSWER, RESULT], True),
        # A separate answer counts, with any text.
        ([USER, REASONING, NEXT], [USER, NEXT], False),
        ([USER, REASONING, NEXT, ANSWER], [USER, NEXT, ANSWER], False),
        ([USER, ANSWER, ANSWER], [USER, ANSWER], False),
        # The text of a user always counts.
        ([said("user", f"{HEADER}1;"), ANSWER], [said("user", f"{HEADER}2;"), ANSWER], False),
        # A message cannot imitate another conversation.
        ([said("user", json.dumps([["user", "hi"]])), ANSWER], [USER, ANSWER], False),
        *(
            ([said(role, one), USER, ANSWER], [said(role, other), USER, ANSWER], are_equal)
            for one, other, are_equal in SYSTEM_TEXTS
            for role in ("system", "developer")
        ),
        # Some clients send later system messages.
        *(
            ([USER, ANSWER, said("system", one), ANSWER], [USER, ANSWER, said("system", other), ANSWER], are_equal)
            for one, other, are_equal in SYSTEM_TEXTS
        ),
    ],
)  # fmt: skip
def test_only_what_clients_do_not_rewrite_identifies_a_conversation(
    one: list[Any], other: list[Any], are_equal: bool
) -> None:
    found = known(*one)
    assert found is not None
    assert (found == known(*other)) is are_equal


def test_tool_results_are_matched_by_call_and_not_by_id() -> None:
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
    # The same results in the other order.
    assert turns("a", "b", list) != turns("b", "a", reversed)


@pytest.mark.parametrize(
    ("variable", "value", "mode", "said"),
    [
        (
            conversations.IGNORE,
            "ok\n(open",
            "null",
            "not a regular expression: missing",
        ),
        (
            conversations.IGNORE,
            ".*",
            "null",
            "'.\\*', which also matches an empty text",
        ),
        (conversations.VARIABLE, "64", "decode", "disaggregation-mode decode"),
        *(
            (conversations.VARIABLE, bad, "null", "whole number of")
            for bad in ("-1", "1.5", "64MB", "²")
        ),
    ],
)
def test_a_bad_variable_fails_at_start(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, mode: str, said: str
) -> None:
    server: Any = SimpleNamespace(tokenizer_worker_num=1, disaggregation_mode=mode)
    conversations.check_server(server)
    # A server reads its variables only once.
    conversations.ignored_patterns.cache_clear()
    monkeypatch.setenv(variable, value)
    with pytest.raises(ValueError, match=said):
        conversations.check_server(server)


def numbered(number: int) -> Conversation:
    """Return a conversation of one message, different for each number."""
    made = Conversation.of("a", [number] * 5)
    made.add("message 0", ["assistant", str(number), []])
    return made


def tokens(memory: Memory, conversation: Conversation) -> list[int] | None:
    """Return the tokens that a memory has of a conversation, None without any."""
    past = memory.get(conversation)
    return None if past is None else past.token_ids.tolist()


# The bytes of a conversation of one message besides its token IDs, and of its client.
OVERHEAD = remembered._ENTRY_BYTES + 7 * remembered._PART_BYTES + 8 * 32
CLIENT = remembered._PART_BYTES


def test_the_least_recently_used_are_evicted() -> None:
    token_ids = [*range(1000)]
    memory = Memory(3 * (4000 + OVERHEAD) + CLIENT)
    for number in (1, 2, 3):
        memory.put(numbered(number), token_ids)
    assert tokens(memory, numbered(1)) == token_ids
    memory.put(numbered(4), token_ids)
    assert memory.get(numbered(2)) is None
    assert memory.explain(numbered(2)) == "message 0"
    assert len(memory) == 3
    assert memory.n_bytes == memory.max_bytes
    # One that is too large evicts nothing.
    memory.put(numbered(5), [1] * 10_000)
    assert len(memory) == 3 and memory.get(numbered(5)) is None


def test_a_memory_counts_the_bytes_that_it_uses() -> None:
    n_messages = 60
    memory = Memory(10**9)
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(1200 // n_messages):
            made = Conversation.of("a", [number] * 5)
            for index in range(n_messages):
                role = "assistant" if index % 2 else "user"
                made.add(f"message {index}", [role, f"{number} {index}", []])
                if role == "assistant":
                    memory.put(made, list(range(100)))
            del made
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 0.8 < taken / memory.n_bytes < 1.05


@pytest.mark.parametrize(
    ("messages", "more", "why"),
    [
        ([SYSTEM, USER, ANSWER, NEXT], {"lora_path": "adapter"}, "model"),
        ([SYSTEM, USER, ANSWER, NEXT], {"tool_choice": "required"}, "tools"),
        ([SYSTEM, USER, ANSWER, NEXT], {"reasoning_effort": "low"}, "template"),
        # The first that differs.
        ([said("system", "You."), USER, ANSWER, NEXT], {"tools": [TOOL]}, "system"),
        ([SYSTEM, said("tool", "hi"), ANSWER, NEXT], {}, "message 1"),
        ([SYSTEM, said("user", "hi", name="x"), ANSWER], {}, "message 1"),
        ([SYSTEM, USER, calling("f", '{"a": true, "b": 2.5}')], {}, "message 2"),
        ([SYSTEM, USER, ANSWER, WRONG_RESULT, ANSWER], {}, "message 3"),
        # Another client hears nothing of these conversations.
        ([SYSTEM, USER, ANSWER, NEXT], {"client": "b"}, "unknown"),
    ],
)
def test_a_miss_reports_the_difference(
    messages: list[Any], more: dict[str, Any], why: str
) -> None:
    memory = Memory(1_000_000)
    memory.put(answered(SYSTEM, USER, ANSWER), [1])
    memory.put(answered(SYSTEM, USER, ANSWER, RESULT, said("assistant", "ok")), [2])
    assert why_missed(memory, *messages, **more) == why


def test_only_remembered_answers_of_one_conversation_explain_a_miss() -> None:
    memory = Memory(50_000)
    memory.put(answered(USER, ANSWER, NEXT, said("assistant", "ok")), [1])
    assert why_missed(memory, USER, ANSWER, NEXT) == "unknown"
    for effort in ("low", "high"):
        memory.put(answered(said("user", effort), ANSWER, reasoning_effort=effort), [1])
    user = said("user", "low")
    assert why_missed(memory, user, ANSWER, reasoning_effort="high") == "template"
    # The same text stands for different tokens.
    memory.put(answered(USER, ANSWER, NEXT, said("assistant", "ok")), [2])
    ok = said("assistant", "ok")
    assert why_missed(memory, USER, ANSWER, NEXT, ok) == "ambiguous"


def test_threads_share_a_memory() -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        memory = Memory(50 * (OVERHEAD + 4) + CLIENT)

        def use(seed: int) -> None:
            for number in range(3000):
                made = numbered(number * seed % 97)
                memory.put(made, [1])
                memory.get(made)
                memory.explain(made)

        with ThreadPoolExecutor(4) as pool:
            for done in [pool.submit(use, seed) for seed in (1, 3, 5, 7)]:
                done.result()
    finally:
        sys.setswitchinterval(interval)
    assert memory.n_bytes == len(memory) * (OVERHEAD + 4) + CLIENT <= memory.max_bytes
