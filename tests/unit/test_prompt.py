"""Prompts: which token IDs are accepted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcore_patches.landing import release
from agentcore_patches.landing.http import prompts
from tests.unit.small_server import VOCAB_SIZE, tokenizer_manager

MAX_LEN = 8


def checked(token_ids: Any) -> str | None:
    return prompts.check_token_ids(
        tokenizer_manager(context_len=MAX_LEN + 1), token_ids
    )


GOOD = st.lists(st.integers(0, VOCAB_SIZE - 1), max_size=3)
BAD = st.one_of(
    *(st.integers(max_value=-1), st.integers(VOCAB_SIZE), st.just(2**64)),
    *(st.floats(), st.booleans(), st.text(), st.none()),
    st.lists(st.integers(0, 9)),
    st.dictionaries(st.text(), st.integers()),
)


@given(before=GOOD, bad=BAD, after=GOOD)
def test_a_bad_id_is_refused_by_its_position(
    before: list[int], bad: Any, after: list[int]
) -> None:
    name = f"input_ids[{len(before)}]"
    expected = (
        f"input_ids must be a flat list of integers, but {name} is of type "
        f"{type(bad).__name__}."
    )
    if type(bad) is int:
        expected = (
            "input_ids must be from 0 to 99 (the vocabulary has 100 tokens), but "
            f"{name} is not."
        )
    assert checked([*before, bad, *after]) == expected


def refused(prompt: Any, **settings: Any) -> str:
    message = prompts.check_prompt(tokenizer_manager(**settings), prompt)
    assert message is not None
    return message


@pytest.mark.parametrize(
    ("settings", "longest"),
    [
        ({}, 16),
        ({"max_req_input_len": 30}, 16),
        ({"max_req_input_len": 10}, 9),
        ({"max_req_input_len": 10, "is_generation": False}, 16),
    ],
)
def test_the_prompt_has_room_for_one_more_token(
    settings: dict[str, Any], longest: int
) -> None:
    settings = {"context_len": 20, "num_reserved_tokens": 3, **settings}
    manager = tokenizer_manager(**settings)
    assert prompts.check_prompt(manager, [1] * longest) is None
    message = refused([1] * (longest + 1), **settings)
    assert f"longer than the {longest} that" in message


def test_each_prompt_of_a_batch_is_checked() -> None:
    assert prompts.check_prompt(tokenizer_manager(), [[1], [2, 3]]) is None
    assert "input_ids[1][2] is not" in refused([[1], [2, 3, -1]])
    assert refused([[1], []]) == "input_ids[1] cannot be empty."
    assert refused([[1], 2]) == (
        "input_ids[1] must be a list of integers, as input_ids[0] is."
    )


def test_placeholders_are_accepted_only_with_media() -> None:
    tokens = SimpleNamespace(
        image_token_id=VOCAB_SIZE, video_token_id=None, audio_token_id=None
    )
    manager = tokenizer_manager(mm_processor=SimpleNamespace(mm_tokens=tokens))
    prompt = [1, VOCAB_SIZE]
    assert prompts.check_prompt(manager, prompt, has_media=True) is None
    assert prompts.check_prompt(manager, prompt) is not None
    text_model = tokenizer_manager()
    assert prompts.check_prompt(text_model, prompt, has_media=True) is not None


@pytest.mark.parametrize(
    ("prompt", "session", "asks_for_prompt", "is_taken"),
    [
        ([], {"id": "one"}, False, True),
        ([], {"id": "one"}, True, False),
        ([VOCAB_SIZE], {"id": "one"}, False, False),
        (None, {"id": "one"}, False, True),
    ],
)
def test_only_a_session_request_may_have_an_empty_prompt(
    prompt: Any,
    session: Any,
    asks_for_prompt: bool,
    is_taken: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(release, "SESSIONS_HAVE_PROMPTS", True)
    obj: Any = SimpleNamespace(
        text=None,
        input_ids=prompt,
        sampling_params=None,
        session_params=session,
        return_prompt_token_ids=asks_for_prompt,
        contains_mm_input=lambda: False,
    )
    assert (prompts.check(tokenizer_manager(), obj) is None) is is_taken
    if is_taken and prompt == []:
        monkeypatch.setattr(release, "SESSIONS_HAVE_PROMPTS", False)
        with pytest.raises(ValueError, match="input_ids cannot be empty"):
            prompts.refuse(tokenizer_manager(), obj)


def test_null_is_removed_from_a_body() -> None:
    body = {"text": None, "return_prompt_token_ids": False}
    assert prompts.without_null(body) == body
    null = {"text": None, "return_prompt_token_ids": None}
    assert prompts.without_null(null) == {"text": None}


def test_a_prompt_of_embeddings_has_no_ids() -> None:
    obj: Any = SimpleNamespace(rid="x", return_prompt_token_ids=True)
    state: Any = SimpleNamespace(obj=obj, finished=False)
    manager: Any = SimpleNamespace(max_req_input_len=2, rid_to_state={"x": state})
    prompts.record(manager, obj, None)
    assert prompts.count(state) == 0
