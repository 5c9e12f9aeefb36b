"""The chat templates for tests differ from what their models sample."""

from __future__ import annotations

from typing import Any

import pytest

from tests.helpers.chat_templates import FAMILIES, Family, sampled, tokenizer

pytest.importorskip("transformers")


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_the_template_differs_from_what_the_model_samples(family: Family) -> None:
    arguments = {"city": "Paris", "days": 2}
    call_id = family.call_ids[0]
    function = {"name": "get_weather", "arguments": arguments}
    answer: dict[str, Any] = {
        "role": "assistant",
        "content": "  Sunny. ",
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
    }
    result = {"role": "tool", "tool_call_id": call_id, "content": "sunny"}
    prompt = tokenizer(family).apply_chat_template(
        [{"role": "user", "content": "Weather?"}, answer, result],
        tokenize=False,
        add_generation_prompt=True,
        **family.template_kwargs,
    )
    assert "Paris" in prompt
    assert sampled(family, answer) not in prompt
