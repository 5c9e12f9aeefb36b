"""Prompts given as token IDs: what is taken, and what is refused in which words."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcore_patches.grafts.token_in import _check_input_ids, _validate_input_ids

VOCAB_SIZE = 100
MAX_LEN = 8


@given(st.lists(st.integers(0, VOCAB_SIZE - 1), min_size=1, max_size=MAX_LEN))
def test_ids_of_the_vocabulary_are_taken(input_ids: list[int]) -> None:
    assert _check_input_ids(input_ids, VOCAB_SIZE, MAX_LEN) is None


GOOD = st.lists(st.integers(0, VOCAB_SIZE - 1), max_size=3)


@given(
    before=GOOD,
    bad=st.one_of(
        st.integers(max_value=-1),
        st.integers(VOCAB_SIZE),
        st.sampled_from([2**63, 2**64]),
    ),
    after=GOOD,
)
def test_an_id_outside_the_vocabulary_is_refused_by_its_position(
    before: list[int], bad: int, after: list[int]
) -> None:
    message = _check_input_ids([*before, bad, *after], VOCAB_SIZE, MAX_LEN)
    assert message == (
        "input_ids must be from 0 to 99 (the vocabulary has 100 tokens), but "
        f"input_ids[{len(before)}] is not."
    )


@given(
    before=GOOD,
    bad=st.one_of(
        st.floats(),
        st.booleans(),
        st.text(),
        st.none(),
        st.lists(st.integers(0, 9)),
        st.dictionaries(st.text(), st.integers()),
    ),
    after=GOOD,
)
def test_what_is_no_integer_is_refused_by_its_position_and_type(
    before: list[int], bad: Any, after: list[int]
) -> None:
    message = _check_input_ids([*before, bad, *after], VOCAB_SIZE, MAX_LEN)
    assert message == (
        f"input_ids must be a flat list of integers, but input_ids[{len(before)}] is of "
        f"type {type(bad).__name__}."
    )


def test_no_ids_are_refused() -> None:
    message = _check_input_ids([], VOCAB_SIZE, MAX_LEN)
    assert message == "input_ids cannot be empty."


@given(st.lists(st.integers(0, VOCAB_SIZE - 1), min_size=MAX_LEN + 1, max_size=20))
def test_a_prompt_that_is_too_long_is_refused_with_both_lengths(
    input_ids: list[int],
) -> None:
    message = _check_input_ids(input_ids, VOCAB_SIZE, MAX_LEN)
    assert message is not None
    assert message.startswith(
        f"input_ids has {len(input_ids)} tokens, which is longer "
    )
    assert f"than the {MAX_LEN} that" in message


def validated(input_ids: list[int], **settings: Any) -> str | None:
    """What the method says in a server with a context of 20, of which 3 are reserved."""
    defaults = {
        "skip_tokenizer_init": False,
        "allow_auto_truncate": False,
        "max_req_input_len": None,
    }
    values = defaults | settings
    manager = SimpleNamespace(
        context_len=20,
        num_reserved_tokens=3,
        max_req_input_len=values.pop("max_req_input_len"),
        model_config=SimpleNamespace(vocab_size=VOCAB_SIZE),
        server_args=SimpleNamespace(**values),
    )
    serving = SimpleNamespace(tokenizer_manager=manager)
    return _validate_input_ids(serving, SimpleNamespace(input_ids=input_ids))


@pytest.mark.parametrize(
    ("settings", "longest"),
    [
        ({}, 16),
        ({"max_req_input_len": 30}, 16),
        ({"max_req_input_len": 10}, 9),
    ],
)
def test_the_prompt_has_room_for_one_more_token(
    settings: dict[str, Any], longest: int
) -> None:
    assert validated([1] * longest, **settings) is None
    refused = validated([1] * (longest + 1), **settings)
    assert refused is not None
    assert f"longer than the {longest} that" in refused


def test_a_long_prompt_is_taken_where_the_server_cuts_it_off() -> None:
    assert validated([1] * 50, allow_auto_truncate=True) is None
    refused = validated([*[1] * 50, VOCAB_SIZE], allow_auto_truncate=True)
    assert refused is not None
    assert "input_ids[50] is not" in refused


def test_without_a_tokenizer_the_way_out_is_named() -> None:
    refused = validated([1], skip_tokenizer_init=True)
    assert refused is not None
    assert "--skip-tokenizer-init" in refused
    assert "/generate" in refused
