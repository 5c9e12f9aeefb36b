"""Token IDs in fields of requests: those that the engine accepts pass."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from agentcore_patches.landing.http import request_fields
from tests.unit.small_server import VOCAB_SIZE, tokenizer_manager

MANAGER = tokenizer_manager()


def error(sampling_params: Any = None, **fields: Any) -> str | None:
    """Return the error of a request, by default one with a single prompt."""
    prompt = {"text": None, "input_ids": [5, 6]}
    obj: Any = SimpleNamespace(sampling_params=sampling_params, **{**prompt, **fields})
    return request_fields.find_error(MANAGER, obj)


@pytest.mark.parametrize("value", [None, [], [5, None], {5}, (5,), [VOCAB_SIZE, -1]])
def test_stop_ids_that_the_engine_accepts_pass(value: Any) -> None:
    assert error({"stop_token_ids": value}) is None


@pytest.mark.parametrize("value", [5, "5", ["5"], [0.5], [[5]], [True], {"5": 1}])
def test_stop_ids_of_a_wrong_type_are_refused_by_name(value: Any) -> None:
    for params in ({"stop_token_ids": value}, [{}, {"stop_token_ids": value}]):
        assert "stop_token_ids" in str(error(params, input_ids=[[5], [6]]))


@pytest.mark.parametrize("more", [{}, {"min_new_tokens": 1}])
def test_stop_ids_outside_the_vocabulary_are_dropped(more: dict[str, Any]) -> None:
    outside = [-1, VOCAB_SIZE, 2**64, None]
    params = {"stop_token_ids": [0, *outside, VOCAB_SIZE - 1], **more}
    assert error(params) is None
    assert params["stop_token_ids"] == [0, VOCAB_SIZE - 1]


@pytest.mark.parametrize(
    ("value", "is_good"),
    [(None, True), ({}, True), ({"5": -100, 6: 1}, True)]
    + [(value, False) for value in ({"a": 1}, {"-1": 1}, {"5.0": 1}, [5], "5")],
)
def test_biases_are_given_by_token_ids(value: Any, is_good: bool) -> None:
    message = error({"logit_bias": value})
    assert is_good == (message is None)
    assert is_good or "logit_bias" in str(message)


@pytest.mark.parametrize("name", ["min_new_tokens", "stop", "stop_regex"])
def test_a_field_that_needs_a_tokenizer_is_refused_without_one(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert error({name: 1}) is None
    monkeypatch.setattr(MANAGER.server_args, "skip_tokenizer_init", True)
    assert f"{name} needs a tokenizer" in str(error({name: 1}))
    assert error({name: 0}) is None


@pytest.mark.parametrize(
    ("prompt", "fields", "is_good"),
    [
        ([5, 6], {"token_ids_logprob": []}, True),
        ([5, 6], {"token_ids_logprob": [0, VOCAB_SIZE - 1]}, True),
        ([5, 6], {"token_ids_logprob": [VOCAB_SIZE]}, False),
        ([5, 6], {"token_ids_logprob": [-1]}, False),
        ([5, 6], {"token_ids_logprob": [[5]], "sampling_params": {"n": 2}}, True),
        ([[5], [6, 7]], {"token_ids_logprob": [5, 6]}, True),
        ([[5], [6, 7]], {"token_ids_logprob": [[5], None]}, True),
        ([[5], [6, 7]], {"token_ids_logprob": [[5], [-1]]}, False),
        ([[5], [6, 7]], {"token_ids_logprob": [[5], [[6]]]}, False),
    ],
)
def test_scored_ids_are_of_the_vocabulary(
    prompt: Any, fields: dict[str, Any], is_good: bool
) -> None:
    message = error(input_ids=prompt, **fields)
    assert (message is None) == is_good
    assert is_good or "token_ids_logprob" in str(message)
