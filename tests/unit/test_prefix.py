"""Answers recorded from streams, and those that the client chose."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from agentcore_patches.landing import release
from agentcore_patches.landing.http import prefix, response_turns
from tests.unit.small_server import Model


def test_the_deltas_of_tool_calls_are_joined() -> None:
    answer = prefix.Answer()
    for index, id_, name, arguments in (
        (1, None, "g", ""),
        (None, None, "f", None),
        (1, None, None, '{"a"'),
        (0, None, None, "{}"),
        (1, None, None, ": 1}"),
        # Two calls of one index.
        (2, "a", "h", ""),
        (2, None, None, "{}"),
        (2, "b", "h", ""),
        (2, None, None, "[]"),
    ):
        function = {"name": name, "arguments": arguments}
        answer.add({"tool_calls": [{"index": index, "id": id_, "function": function}]})
    functions = [call.function for call in answer.tool_calls]
    calls = [("f", "{}"), ("g", '{"a": 1}'), ("h", "{}"), ("h", "[]")]
    assert [(one.name, one.arguments) for one in functions] == calls


@pytest.mark.parametrize(
    ("chat", "response", "chooses"),
    [
        ({}, None, False),
        ({"tool_choice": "none"}, {}, False),
        ({"response_format": {"type": "text"}, "regex": None}, {"text": None}, False),
        ({}, {"text": {"format": {"type": "text"}}}, False),
        ({}, {"text": {}}, False),
        ({"logit_bias": {}, "stop": "a", "temperature": 2}, None, False),
        ({"tool_choice": "required"}, None, True),
        ({"tool_choice": SimpleNamespace(function="f")}, None, True),
        *(
            ({name: {"type": "a"}}, None, True)
            for name in (
                *("regex", "ebnf", "response_format", "structured_outputs"),
                *("logit_bias", "custom_logit_processor", "ignore_eos"),
            )
        ),
        ({"custom_logit_processor": [None, "{}"]}, None, True),
        ({}, {"text": {"format": {"type": "json_object"}}}, True),
    ],
)
def test_a_request_that_can_choose_its_answer_is_recognized(
    chat: Any, response: Any, chooses: bool
) -> None:
    request: Any = Model(**{"tool_choice": "auto", **chat})
    made: Any = None if response is None else Model(**response)
    assert prefix._chooses_answer(request, made) == chooses


@pytest.mark.parametrize(
    ("asked", "uses_memory"),
    [
        ({}, True),
        ({"return_token_ids": False}, False),
        ({"background": True}, False),
    ],
)
def test_a_background_response_does_not_use_the_memory(
    monkeypatch: pytest.MonkeyPatch, asked: Any, uses_memory: bool
) -> None:
    monkeypatch.setattr(release, "RESPONSES_ARE_TRACED", True)
    request: Any = Model(**{"return_token_ids": None, "background": False, **asked})
    serving: Any = None
    assert response_turns._start(serving, request).uses_memory is uses_memory
