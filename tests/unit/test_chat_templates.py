"""The chat templates for tests: each is used, and matches its family's attributes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.helpers.chat_templates import (
    FAMILIES,
    FOLDER,
    Family,
    sampled,
    tokenizer,
)

pytest.importorskip("transformers")

FUNCTION = {"name": "get_weather", "description": "Weather.", "parameters": {}}
TOOL = {"type": "function", "function": FUNCTION}
USER = {"role": "user", "content": "Weather?"}


@pytest.fixture(params=FAMILIES, ids=str)
def family(request: pytest.FixtureRequest) -> Family:
    found: Family = request.param
    return found


def rendered(
    family: Family, *messages: dict[str, Any], tools: list[Any] | None = None
) -> str:
    """Return the prompt for the next answer."""
    text: str = tokenizer(family).apply_chat_template(
        [USER, *messages],
        tools=tools,
        tokenize=False,
        add_generation_prompt=True,
        **family.template_kwargs,
    )
    return text


def answered(family: Family, n_calls: int) -> list[dict[str, Any]]:
    """Return an answer and its tool results."""
    answer: dict[str, Any] = {"role": "assistant", "content": "  Sunny. "}
    answer["tool_calls"] = [
        {
            "id": call_id,
            "type": "function",
            "function": {"name": "get_weather", "arguments": {"city": city, "days": 2}},
        }
        for city, call_id in zip(("Paris", "Rome"), family.call_ids, strict=True)
    ][:n_calls]
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": "sunny"}
        for call in answer["tool_calls"]
    ]
    return [answer, *results]


def test_each_template_belongs_to_a_family() -> None:
    names = {family.template or family.name for family in FAMILIES}
    assert names == {path.stem for path in FOLDER.glob("*.jinja")}
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)


def test_special_tokens_are_single_ids(family: Family) -> None:
    known = tokenizer(family)
    names = {*family.special_tokens, *family.added_tokens}
    assert {*family.stop_tokens, *family.before_text} <= names
    ids = [known.encode(name, add_special_tokens=False) for name in names]
    assert {len(found) for found in ids} == {1}
    assert len({found[0] for found in ids}) == len(names)
    hidden = known.decode([found[0] for found in ids], skip_special_tokens=True)
    assert not any(name in hidden for name in family.special_tokens)
    assert all(name in hidden for name in family.added_tokens)


def test_the_template_writes_as_many_calls_as_the_family_says(family: Family) -> None:
    assert "get_weather" in rendered(family, tools=[TOOL])
    assert "Paris" in rendered(family, *answered(family, 1))
    try:
        takes_two = "Rome" in rendered(family, *answered(family, 2))
    except Exception:
        takes_two = False
    assert takes_two is family.parallel_calls


def test_the_template_differs_from_what_the_model_samples(family: Family) -> None:
    answer, *results = answered(family, 1)
    assert sampled(family, answer) not in rendered(family, answer, *results)
