"""Measure what a prefix costs when a prompt is made.

    python benchmarks/turns.py [--json FILE]

In SGLang's own chat class, the time to make a prompt: without a prefix against SGLang's
own method, and with a memory of few and of many conversations. Needs SGLang in this
interpreter; its install is copied, never changed.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any
from unittest import mock

import report
from trees import copies, measured

ROUNDS = 400


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
        rows = measured(__file__, patched)
    report.show("To make a prompt of 41 messages", rows, options.json)


if __name__ == "__main__":
    main()
