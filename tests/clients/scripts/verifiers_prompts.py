"""Prompts that the Qwen3 renderer of `renderers` makes of conversations."""

from __future__ import annotations

from typing import Any

from renderers import Qwen3RendererConfig, create_renderer
from renderers.base import load_tokenizer


def read(task: dict[str, Any]) -> dict[str, Any]:
    tokenizer = load_tokenizer(task["tokenizer"])
    renderer = create_renderer(tokenizer, Qwen3RendererConfig())
    prompts = [
        renderer.render_ids(messages, tools=task["tools"], add_generation_prompt=True)
        for messages in task["conversations"]
    ]
    return {"prompts": prompts}
