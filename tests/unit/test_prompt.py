"""Prompts: which token IDs are taken, and what answers say about them."""

from __future__ import annotations

from array import array
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcore_patches.grafts import prompt as graft
from agentcore_patches.grafts.prompt import (
    _add_prompt,
    _count_prompt,
    _keep_prompt,
)
from agentcore_patches.grafts.token_in import _validate_input_ids

VOCAB_SIZE = 100
MAX_LEN = 8


def checked(token_ids: Any, placeholders: tuple[Any, ...] = ()) -> str | None:
    return graft._check_token_ids(
        token_ids, "input_ids", VOCAB_SIZE, MAX_LEN, placeholders
    )


@given(st.lists(st.integers(0, VOCAB_SIZE - 1), min_size=1, max_size=MAX_LEN))
def test_ids_of_the_vocabulary_are_taken(input_ids: list[int]) -> None:
    assert checked(input_ids) is None


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
    message = checked([*before, bad, *after])
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
    message = checked([*before, bad, *after])
    assert message == (
        f"input_ids must be a flat list of integers, but input_ids[{len(before)}] is of "
        f"type {type(bad).__name__}."
    )


def test_no_ids_are_refused() -> None:
    message = checked([])
    assert message == "input_ids cannot be empty."


@given(st.lists(st.integers(0, VOCAB_SIZE - 1), min_size=MAX_LEN + 1, max_size=20))
def test_a_prompt_that_is_too_long_is_refused_with_both_lengths(
    input_ids: list[int],
) -> None:
    message = checked(input_ids)
    assert message is not None
    assert message.startswith(
        f"input_ids has {len(input_ids)} tokens, which is longer "
    )
    assert f"than the {MAX_LEN} that" in message


def test_an_integer_of_another_kind_is_taken() -> None:
    class Number(int):
        pass

    assert checked([1, Number(2)]) is None


def test_an_image_token_beyond_the_vocabulary_is_taken() -> None:
    assert checked([1, VOCAB_SIZE], placeholders=(None, VOCAB_SIZE)) is None
    refused = checked([1, VOCAB_SIZE, VOCAB_SIZE + 1], placeholders=(VOCAB_SIZE,))
    assert refused is not None
    assert "input_ids[2] is not" in refused


def tokenizer_manager(**settings: Any) -> SimpleNamespace:
    """A server with a context of 20, of which 3 are reserved, and what checks prompts."""
    args = {"skip_tokenizer_init": False, "allow_auto_truncate": False}
    manager = SimpleNamespace(
        context_len=20,
        num_reserved_tokens=3,
        max_req_input_len=settings.pop("max_req_input_len", None),
        is_generation=settings.pop("is_generation", True),
        mm_processor=settings.pop("mm_processor", None),
        model_config=SimpleNamespace(vocab_size=VOCAB_SIZE, image_token_id=None),
        server_args=SimpleNamespace(**(args | settings)),
    )
    manager.check_token_ids = partial(graft.check_token_ids, manager)
    return manager


def refused(prompt: Any, **settings: Any) -> str:
    message = graft.check_prompt(tokenizer_manager(**settings), prompt)
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
    manager = tokenizer_manager(**settings)
    assert graft.check_prompt(manager, [1] * longest) is None
    message = refused([1] * (longest + 1), **settings)
    assert f"longer than the {longest} that" in message


def test_a_long_prompt_is_taken_where_the_server_cuts_it_off() -> None:
    manager = tokenizer_manager(allow_auto_truncate=True)
    assert graft.check_prompt(manager, [1] * 50) is None
    message = refused([*[1] * 50, VOCAB_SIZE], allow_auto_truncate=True)
    assert "input_ids[50] is not" in message


def test_each_prompt_of_a_batch_is_checked() -> None:
    assert graft.check_prompt(tokenizer_manager(), [[1], [2, 3]]) is None
    assert "input_ids[1][2] is not" in refused([[1], [2, 3, -1]])
    assert refused([[1], []]) == "input_ids[1] cannot be empty."
    assert refused([[1], 2]) == (
        "input_ids[1] must be a list of integers, as input_ids[0] is."
    )


def test_a_prompt_that_is_sampled_several_times_is_checked_once() -> None:
    manager = tokenizer_manager()
    calls: list[str] = []
    manager.check_token_ids = lambda ids, name, has_media: calls.append(name)
    one, other = [1], [1]
    assert graft.check_prompt(manager, [one, other, one, other]) is None
    assert calls == ["input_ids[0]", "input_ids[1]"]


def test_placeholders_are_taken_only_where_something_stands_behind_them() -> None:
    tokens = SimpleNamespace(image_token_id=VOCAB_SIZE, video_token_id=None)
    manager = tokenizer_manager(mm_processor=SimpleNamespace(mm_tokens=tokens))
    prompt = [1, VOCAB_SIZE]
    assert graft.check_prompt(manager, prompt, has_media=True) is None
    assert graft.check_prompt(manager, prompt) is not None
    text_model = tokenizer_manager()
    assert graft.check_prompt(text_model, prompt, has_media=True) is not None


@pytest.mark.parametrize(
    ("prompt", "session", "asks_for_prompt", "is_taken"),
    [
        ([], {"id": "one"}, False, True),
        ([], {"id": "one"}, True, False),
        ([], {"id": None}, False, False),
        ([], None, False, False),
        ([1], {"id": "one"}, False, True),
        ([VOCAB_SIZE], {"id": "one"}, False, False),
        ([[]], {"id": "one"}, False, False),
        (None, {"id": "one"}, False, True),
    ],
)
def test_only_a_request_to_a_session_may_have_an_empty_prompt(
    prompt: Any, session: Any, asks_for_prompt: bool, is_taken: bool
) -> None:
    manager = tokenizer_manager()
    manager.check_prompt = partial(graft.check_prompt, manager)
    manager.check_request = partial(graft.check_request, manager)
    obj: Any = SimpleNamespace(
        input_ids=prompt,
        session_params=session,
        return_prompt_token_ids=asks_for_prompt,
        contains_mm_input=lambda: False,
    )
    assert (graft.check_session_request(manager, obj) is None) is is_taken


def chat(input_ids: list[int], *parts: str) -> SimpleNamespace:
    content = [SimpleNamespace(type=part) for part in parts]
    messages = [SimpleNamespace(content="-"), SimpleNamespace(content=content)]
    return SimpleNamespace(input_ids=input_ids, messages=messages)


def test_a_chat_request_says_whether_it_has_images() -> None:
    tokens = SimpleNamespace(image_token_id=VOCAB_SIZE)
    manager = tokenizer_manager(mm_processor=SimpleNamespace(mm_tokens=tokens))
    serving = SimpleNamespace(tokenizer_manager=manager)
    with_image = chat([VOCAB_SIZE], "text", "image_url")
    assert _validate_input_ids(serving, with_image) is None
    assert _validate_input_ids(serving, chat([VOCAB_SIZE], "text")) is not None


def test_a_chat_request_has_one_prompt() -> None:
    serving = SimpleNamespace(tokenizer_manager=tokenizer_manager())
    nested: Any = [[1]]
    message = _validate_input_ids(serving, chat(nested))
    assert message is not None
    assert "input_ids[0] is of type list" in message


def test_without_a_tokenizer_the_way_out_is_named() -> None:
    manager = tokenizer_manager(skip_tokenizer_init=True)
    serving = SimpleNamespace(tokenizer_manager=manager)
    message = _validate_input_ids(serving, chat([1]))
    assert message is not None
    assert "--skip-tokenizer-init" in message
    assert "/generate" in message


def state(**asked: Any) -> SimpleNamespace:
    obj = SimpleNamespace(**({"return_prompt_token_ids": True} | asked))
    return SimpleNamespace(obj=obj, prompt_token_ids=None, prompt_tokens=0)


def test_what_the_scheduler_cuts_off_is_not_kept() -> None:
    kept = state()
    _keep_prompt(kept, [5, 6, 7], 2)
    assert (kept.prompt_token_ids, kept.prompt_tokens) == ([5, 6], 2)


@pytest.mark.parametrize("flag", [False, None])
def test_the_length_alone_is_kept_where_nobody_asks_for_the_prompt(
    flag: bool | None,
) -> None:
    kept = state(return_prompt_token_ids=flag)
    _keep_prompt(kept, [5, 6, 7], None)
    assert (kept.prompt_token_ids, kept.prompt_tokens) == (None, 3)


def test_a_prompt_of_embeddings_has_no_ids() -> None:
    kept = state()
    _keep_prompt(kept, None, 2)
    assert (kept.prompt_token_ids, kept.prompt_tokens) == (None, 0)


@pytest.mark.parametrize("is_stream", [False, True])
def test_the_first_chunk_of_a_stream_takes_the_prompt(is_stream: bool) -> None:
    kept = state()
    _keep_prompt(kept, [5, 6], None)
    out: dict[str, Any] = {"meta_info": {"prompt_tokens": 2}}
    _add_prompt(kept, out, is_stream)
    assert out["prompt_token_ids"] == [5, 6]
    assert kept.prompt_token_ids == (None if is_stream else [5, 6])


def test_a_prompt_that_the_scheduler_made_longer_is_not_told() -> None:
    kept = state()
    _keep_prompt(kept, [5, 6], None)
    out: dict[str, Any] = {"meta_info": {"prompt_tokens": 9}}
    _add_prompt(kept, out, is_stream=False)
    assert "prompt_token_ids" not in out


@pytest.mark.parametrize("max_len", [None, 3, 9])
def test_as_many_tokens_are_counted_as_are_prefilled(max_len: int | None) -> None:
    kept = state()
    _count_prompt(kept, array("q", [5, 6, 7, 8]), max_len)
    assert kept.prompt_tokens == min(4, max_len or 4)
    _count_prompt(kept, None, max_len)
    assert kept.prompt_tokens == min(4, max_len or 4)


def known(prompt: list[int]) -> SimpleNamespace:
    """The state of a request of which two tokens are prefilled, as SGLang keeps it."""
    return SimpleNamespace(prompt_token_ids=prompt, prompt_tokens=2)


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_prompt_that_is_on_every_chunk_is_left_on_the_first(is_stream: bool) -> None:
    kept = known([5, 6])
    out: dict[str, Any] = {
        "prompt_token_ids": [5, 6],
        "meta_info": {"prompt_tokens": 2},
    }
    _add_prompt(kept, out, is_stream)
    assert out["prompt_token_ids"] == [5, 6]
    assert kept.prompt_token_ids == (None if is_stream else [5, 6])


def test_a_prompt_that_the_scheduler_cuts_is_told_as_it_was_prefilled() -> None:
    kept = known([5, 6, 7])
    out: dict[str, Any] = {"meta_info": {"prompt_tokens": 2}}
    _add_prompt(kept, out, is_stream=False)
    assert out["prompt_token_ids"] == [5, 6]


@pytest.mark.parametrize("prefilled", [1, 9])
def test_a_prompt_in_whose_place_another_was_prefilled_is_not_told(
    prefilled: int,
) -> None:
    kept = known([5, 6])
    out: dict[str, Any] = {
        "prompt_token_ids": [5, 6],
        "meta_info": {"prompt_tokens": prefilled},
    }
    _add_prompt(kept, out, is_stream=False)
    assert "prompt_token_ids" not in out
