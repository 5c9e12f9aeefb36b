"""Five turns by the `anthropic` SDK, like Claude Code's: without extra fields."""

from __future__ import annotations

from typing import Any

import anthropic


def read(task: dict[str, Any]) -> dict[str, Any]:
    client: Any = anthropic.Anthropic(
        base_url=task["base_url"], api_key="none", max_retries=0
    )
    return {
        "create": _turns(client, task, lambda asked: client.messages.create(**asked)),
        "stream": _turns(client, task, lambda asked: _streamed(client, asked)),
    }


def _turns(client: Any, task: dict[str, Any], answer: Any) -> list[Any]:
    """Return `metadata.prefix` of each turn."""
    messages: list[Any] = []
    prefixes = []
    for question in task["questions"]:
        said: list[Any] = [{"type": "text", "text": question}]
        if messages:
            calls = [b for b in messages[-1]["content"] if b["type"] == "tool_use"]
            said = [
                {"type": "tool_result", "tool_use_id": b["id"], "content": "sunny"}
                for b in calls
            ] + said
        messages.append({"role": "user", "content": said})
        message = answer(
            {
                "model": "default",
                "max_tokens": 60,
                "messages": messages,
                "tools": task["tools"],
                "extra_body": {"temperature": 0},
            }
        )
        prefixes.append((getattr(message, "metadata", None) or {}).get("prefix"))
        content = [
            block.model_dump(include={"type", "text", "id", "name", "input"})
            for block in message.content
        ]
        messages.append({"role": "assistant", "content": content or [_EMPTY]})
    return prefixes


_EMPTY = {"type": "text", "text": "(nothing)"}


def _streamed(client: Any, asked: dict[str, Any]) -> Any:
    with client.messages.stream(**asked) as stream:
        return stream.get_final_message()
