"""Measure the savings of a prefix per turn on a real server, and its cost elsewhere.

    python benchmarks/turns.py [--quick] [--json FILE]

A conversation of eight turns whose client trims the answers, on a patched server on the
CPU: time to the first token and `cached_tokens`, with `required_prefix_token_ids` and
without. Then, in SGLang's own chat class, the time to make a prompt: without a prefix
against SGLang's own method, and with a memory of few and of many conversations. Needs
SGLang in this interpreter; its install is copied, never changed.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any
from unittest import mock

import report
from trees import copies, measured, server

from agentcore_verify import client

TURNS = 8
ROUNDS = 400


def turns(url: str, with_prefix: bool, number: int) -> list[tuple[float, int, int]]:
    """Return each turn's milliseconds to the first token, cached and prompt tokens."""
    messages: list[dict[str, Any]] = []
    past: dict[str, Any] = {}
    found = []
    for turn in range(TURNS):
        words = " ".join(f"{number} {with_prefix} {turn} {i}" for i in range(40))
        messages.append({"role": "user", "content": words})
        body = {"messages": messages, "temperature": 0, "max_tokens": 64, **past}
        body["stream_options"] = {"include_usage": True}
        body["ignore_eos"] = True
        began = time.perf_counter()
        first = 0.0
        events = []
        for event in client.chat_stream(url, **body):
            events.append(event)
            if not first and any(c.get("token_ids") for c in event["choices"]):
                first = (time.perf_counter() - began) * 1000
        answer = client.read_events(events)
        assert answer.usage is not None
        details = answer.usage.get("prompt_tokens_details") or {}
        cached = details.get("cached_tokens", 0)
        found.append((first, cached, answer.usage["prompt_tokens"]))
        [completion] = answer.completions
        if with_prefix:
            prompt, own = answer.prompt_token_ids or (), completion.token_ids or ()
            past = {"required_prefix_token_ids": [*prompt, *own]}
        text = completion.content[1:].strip()
        messages.append({"role": "assistant", "content": text})
    return found


def measured_turns(tree: Path, conversations: int) -> list[report.Row]:
    with server(tree, "--enable-cache-report") as running:
        turns(running.base_url, False, -1)
        without, prefixed = (
            [turns(running.base_url, flag, i) for i in range(conversations)]
            for flag in (False, True)
        )
    return [
        report.compared(
            f"turn {turn + 1}, {what}",
            without=[run[turn][column] for run in without],
            prefixed=[run[turn][column] for run in prefixed],
        )
        for turn in range(1, TURNS)
        for column, what in enumerate(("first token, ms", "cached", "prompt"))
    ]


def costs() -> list[report.Row]:
    """Measure the milliseconds to make a prompt of 41 messages."""
    from sglang.srt.agentcore.http import conversations, prefix, remembered
    from sglang.srt.entrypoints.openai.protocol import ChatCompletionRequest

    from tests.helpers.chat_templates import FAMILIES
    from tests.live.in_templates import endpoint

    chat = endpoint(FAMILIES[0])
    messages: list[dict[str, Any]] = []
    for turn in range(20):
        messages.append({"role": "user", "content": f"Question {turn} " * 20})
        messages.append({"role": "assistant", "content": f"Answer {turn} " * 20})
    messages.append({"role": "user", "content": "And?"})
    process = type(chat)._process_messages

    def once(made: Any) -> float:
        request = ChatCompletionRequest(messages=messages)
        prefix.record_client(request, None)
        began = time.perf_counter()
        made(chat, request, False)
        return (time.perf_counter() - began) * 1000

    def remembering(count: int, *, known: bool) -> conversations.Memory:
        memory = conversations.Memory(10**9)
        with mock.patch.object(conversations, "memory", return_value=memory):
            client = prefix.client_of(None)
        for number in range(count):
            made = remembered.Conversation.of(client, [number] * 5)
            for index in range(40):
                role = ("user", "assistant")[index % 2]
                made.add(f"message {index}", [role, f"{number}", []])
            memory.put(made, [number] * 1000)
        if known:
            request = ChatCompletionRequest(messages=messages)
            found, _, _ = conversations.find(chat, request, client)
            assert found is not None
            prompt = process.__wrapped__(chat, request, False).prompt_ids
            memory.put(found, prompt[:-20])
        return memory

    ways = {
        "SGLang's own": (process.__wrapped__, None),
        "patched, nothing asked": (process, None),
        "memory of 10, not found": (process, remembering(10, known=False)),
        "memory of 10,000, not found": (process, remembering(10_000, known=False)),
        "memory of 10, found": (process, remembering(10, known=True)),
        "memory of 10,000, found": (process, remembering(10_000, known=True)),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, (made, memory) in ways.items():
            with mock.patch.object(conversations, "memory", return_value=memory):
                times[name].append(once(made))
    return [
        report.compared(f"{name}, ms", own=times["SGLang's own"], request=found)
        for name, found in times.items()
    ]


def main() -> None:
    if sys.argv[1:] == ["--child"]:
        print(json.dumps(costs()))
        return

    options = report.options(__doc__)
    with copies() as (_, patched):
        costs_found = measured(__file__, patched)
        report.show("To make a prompt of 41 messages", costs_found, None)
        rows = measured_turns(patched, 1 if options.quick else 3)
    report.show("Turns of a client that trims the answers", rows, options.json)


if __name__ == "__main__":
    main()
