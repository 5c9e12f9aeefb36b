"""Prompts: which token IDs are accepted, and how responses return them."""

from __future__ import annotations

from array import array
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcore_patches.landing import prompts, release

VOCAB_SIZE = 100
MAX_LEN = 8


def checked(token_ids: Any, placeholders: tuple[Any, ...] = ()) -> str | None:
    found = prompts.find_error(
        token_ids, "input_ids", VOCAB_SIZE, MAX_LEN, placeholders
    )
    return None if found is None else found[1]


@given(st.lists(st.integers(0, VOCAB_SIZE - 1), min_size=1, max_size=MAX_LEN))
def test_ids_in_the_vocabulary_are_accepted(input_ids: list[int]) -> None:
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
def test_a_non_integer_is_refused_by_its_position_and_type(
    before: list[int], bad: Any, after: list[int]
) -> None:
    message = checked([*before, bad, *after])
    assert message == (
        f"input_ids must be a flat list of integers, but input_ids[{len(before)}] is of "
        f"type {type(bad).__name__}."
    )


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


def test_an_integer_of_another_type_is_accepted() -> None:
    class Number(int):
        pass

    assert checked([1, Number(2)]) is None


def test_an_image_token_beyond_the_vocabulary_is_accepted() -> None:
    assert checked([1, VOCAB_SIZE], placeholders=(None, VOCAB_SIZE)) is None
    refused = checked([1, VOCAB_SIZE, VOCAB_SIZE + 1], placeholders=(VOCAB_SIZE,))
    assert refused is not None
    assert "input_ids[2] is not" in refused


def tokenizer_manager(**settings: Any) -> Any:
    """Return a tokenizer manager with a context of 20, of which 3 are reserved."""
    args = {"skip_tokenizer_init": False, "allow_auto_truncate": False, "dp_size": 1}
    return SimpleNamespace(
        context_len=20,
        num_reserved_tokens=3,
        max_req_input_len=settings.pop("max_req_input_len", None),
        is_generation=settings.pop("is_generation", True),
        mm_processor=settings.pop("mm_processor", None),
        model_config=SimpleNamespace(vocab_size=VOCAB_SIZE, image_token_id=None),
        server_args=SimpleNamespace(**(args | settings)),
    )


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
    manager = tokenizer_manager(**settings)
    assert prompts.check_prompt(manager, [1] * longest) is None
    message = refused([1] * (longest + 1), **settings)
    assert f"longer than the {longest} that" in message


def test_a_long_prompt_is_accepted_if_the_server_truncates() -> None:
    manager = tokenizer_manager(allow_auto_truncate=True)
    assert prompts.check_prompt(manager, [1] * 50) is None
    message = refused([*[1] * 50, VOCAB_SIZE], allow_auto_truncate=True)
    assert "input_ids[50] is not" in message


def test_each_prompt_of_a_batch_is_checked() -> None:
    assert prompts.check_prompt(tokenizer_manager(), [[1], [2, 3]]) is None
    assert "input_ids[1][2] is not" in refused([[1], [2, 3, -1]])
    assert refused([[1], []]) == "input_ids[1] cannot be empty."
    assert refused([[1], 2]) == (
        "input_ids[1] must be a list of integers, as input_ids[0] is."
    )


def test_a_prompt_with_several_samples_is_checked_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[str] = []
    monkeypatch.setattr(
        prompts,
        "check_token_ids",
        lambda manager, ids, name, has_media: calls.append(name),
    )
    one, other = [1], [1]
    prompt = [one, other, one, other]
    assert prompts.check_prompt(tokenizer_manager(), prompt) is None
    assert calls == ["input_ids[0]", "input_ids[1]"]


def test_placeholders_are_accepted_only_with_media() -> None:
    tokens = SimpleNamespace(image_token_id=VOCAB_SIZE, video_token_id=None)
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
        ([], {"id": None}, False, False),
        ([], None, False, False),
        ([1], {"id": "one"}, False, True),
        ([VOCAB_SIZE], {"id": "one"}, False, False),
        ([[]], {"id": "one"}, False, False),
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
    obj = request(prompt, session, asks_for_prompt)
    assert (prompts.check(tokenizer_manager(), obj) is None) is is_taken


@pytest.mark.parametrize("session", [None, {"id": "one"}])
def test_a_text_without_tokens_is_refused_except_in_a_session(
    session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release, "SESSIONS_HAVE_PROMPTS", True)
    obj = SimpleNamespace(rid="x", session_params=session)
    manager: Any = SimpleNamespace(max_req_input_len=None, rid_to_state={})
    with nullcontext() if session else pytest.raises(ValueError, match="empty"):
        prompts.keep(manager, obj, [])


def request(prompt: Any, session: Any, asks_for_prompt: bool = False) -> Any:
    return SimpleNamespace(
        text=None,
        input_ids=prompt,
        sampling_params=None,
        session_params=session,
        return_prompt_token_ids=asks_for_prompt,
        contains_mm_input=lambda: False,
    )


def test_a_session_needs_a_prompt_if_sglang_requires_one() -> None:
    with pytest.raises(ValueError, match="input_ids cannot be empty"):
        prompts.refuse(tokenizer_manager(), request([], {"id": "one"}))


def test_a_request_without_sessions_or_flag_is_checked() -> None:
    obj: Any = SimpleNamespace(
        text=None,
        input_ids=[1, 2],
        sampling_params=None,
        contains_mm_input=lambda: False,
    )
    prompts.refuse(tokenizer_manager(), obj)


def chat(input_ids: Any, *parts: str, **fields: Any) -> Any:
    content = [SimpleNamespace(type=part) for part in parts]
    messages = [SimpleNamespace(content="-"), SimpleNamespace(content=content)]
    return SimpleNamespace(input_ids=input_ids, messages=messages, **fields)


def test_images_of_a_chat_request_are_detected() -> None:
    tokens = SimpleNamespace(image_token_id=VOCAB_SIZE)
    manager = tokenizer_manager(mm_processor=SimpleNamespace(mm_tokens=tokens))
    with_image = chat([VOCAB_SIZE], "text", "image_url")
    assert prompts.check_chat(manager, with_image) is None
    assert prompts.check_chat(manager, chat([VOCAB_SIZE], "text")) is not None


@pytest.mark.parametrize("flag", ["return_prompt_token_ids", "return_meta_info"])
def test_a_token_in_stream_with_prompt_or_meta_info_is_refused(
    flag: str,
) -> None:
    flags = {"return_prompt_token_ids": None, "return_meta_info": None, flag: True}
    manager = tokenizer_manager()
    message = prompts.check_token_in(manager, chat([1], stream=True, **flags))
    assert message == f"{flag} is not supported while streaming: set stream=false."
    assert prompts.check_token_in(manager, chat([1], stream=False, **flags)) is None
    message = prompts.check_token_in(manager, chat([], stream=False, **flags))
    assert message == "input_ids cannot be empty."


def test_a_chat_request_without_input_ids_is_not_checked() -> None:
    manager = tokenizer_manager(skip_tokenizer_init=True)
    assert prompts.check_chat(manager, chat(None)) is None


@pytest.mark.parametrize("flag", [True, False])
def test_null_fields_are_removed_from_a_body(flag: bool) -> None:
    body = {"text": None, "return_prompt_token_ids": flag}
    assert prompts.without_null(body) == body
    assert prompts.without_null({"text": "x"}) == {"text": "x"}
    null = {"text": None, "return_prompt_token_ids": None}
    assert prompts.without_null(null) == {"text": None}


class Request:
    """A request, its state, and the tokenizer manager's calls on them."""

    def __init__(self, max_len: int | None = None, **asked: Any) -> None:
        asked = {"rid": "x", "return_prompt_token_ids": True} | asked
        self.obj = SimpleNamespace(**asked)
        self.state: Any = SimpleNamespace(obj=self.obj, finished=False)
        self.manager: Any = SimpleNamespace(
            max_req_input_len=max_len, rid_to_state={"x": self.state}
        )

    def keep(self, prompt: Any) -> None:
        prompts.keep(self.manager, self.obj, prompt)

    def answer(self, n_tokens: int, is_stream: bool = False, **out: Any) -> Any:
        """Return the output for a prompt of which `n_tokens` were prefilled."""
        out["meta_info"] = {"prompt_tokens": n_tokens}
        prompts.add(self.state, out, is_stream)
        return out.get("prompt_token_ids")


@pytest.mark.parametrize("flag", [False, None])
def test_only_the_length_is_kept_if_the_prompt_is_not_requested(
    flag: bool | None,
) -> None:
    kept = Request(return_prompt_token_ids=flag)
    kept.keep([5, 6, 7])
    assert prompts.count(kept.state) == 3
    assert kept.answer(3) is None
    assert kept.obj.prefilled == (3, None)


def test_a_prompt_of_embeddings_has_no_ids() -> None:
    kept = Request(max_len=2)
    kept.keep(None)
    assert prompts.count(kept.state) == 0
    assert kept.answer(0) is None


# From 0.5.13 on, SGLang itself puts the prompt on every chunk.
each_given = pytest.mark.parametrize("given", [{}, {"prompt_token_ids": [5, 6]}])


@each_given
@pytest.mark.parametrize("is_stream", [False, True])
def test_the_first_chunk_of_a_stream_takes_the_prompt(
    is_stream: bool, given: dict[str, Any]
) -> None:
    kept = Request()
    kept.keep([5, 6])
    assert kept.answer(2, is_stream, **given) == [5, 6]
    assert kept.answer(2, is_stream, **given) == (None if is_stream else [5, 6])
    assert prompts.count(kept.state) == 2


def test_the_prompt_is_dropped_with_the_answer() -> None:
    kept = Request()
    kept.keep([5, 6])
    kept.state.finished = True
    assert kept.answer(2) == [5, 6]
    assert kept.state.prefilled == (2, None)


@each_given
@pytest.mark.parametrize("prefilled", [1, 9])
def test_a_prompt_of_another_prefilled_length_is_not_returned(
    prefilled: int, given: dict[str, Any]
) -> None:
    kept = Request()
    kept.keep([5, 6])
    assert kept.answer(prefilled, **given) is None


@pytest.mark.parametrize("max_len", [None, 3, 9])
def test_the_token_count_is_the_prefilled_length(max_len: int | None) -> None:
    kept = Request(max_len)
    kept.keep(array("q", [5, 6, 7, 8]))
    n_tokens = min(4, max_len or 4)
    assert prompts.count(kept.state) == n_tokens
    kept.keep(None)
    assert prompts.count(kept.state) == n_tokens
    prompt = [5, 6, 7, 8]
    assert kept.answer(n_tokens) == prompt[:n_tokens]
    assert kept.answer(n_tokens, prompt_token_ids=prompt) == prompt[:n_tokens]


@pytest.mark.parametrize("later", [False, True])
def test_the_prompt_survives_a_replaced_request_object(later: bool) -> None:
    kept = Request()
    another = SimpleNamespace(return_prompt_token_ids=True)
    if not later:
        kept.state.obj = another
    kept.keep([5, 6])
    kept.state.obj = another
    assert prompts.count(kept.state) == 2
    assert kept.answer(2) == [5, 6]
    # The requests of n > 1 are copies of the one that was tokenized.
    assert kept.obj.prefilled == (2, [5, 6])


@pytest.mark.parametrize(
    ("asked", "content"),
    [
        ({}, None),
        ({"return_prompt_token_ids": True}, None),
        ({"return_meta_info": True}, ""),
        ({"input_ids": [1]}, ""),
    ],
)
def test_a_choice_has_the_requested_fields(
    asked: dict[str, Any], content: str | None
) -> None:
    fields = {"return_prompt_token_ids": None, "return_meta_info": None}
    request: Any = SimpleNamespace(**{"input_ids": None, **fields, **asked})
    message = SimpleNamespace(content=None)
    choice: Any = SimpleNamespace(
        message=message, prompt_token_ids=None, meta_info=None
    )
    ret_item = {"prompt_token_ids": [5], "meta_info": {"id": "x"}}
    prompts.add_to_choice(choice, request, ret_item)
    assert choice.prompt_token_ids == (
        [5] if asked.get("return_prompt_token_ids") else None
    )
    assert choice.meta_info == ({"id": "x"} if asked.get("return_meta_info") else None)
    assert message.content == content


def test_only_fields_that_are_none_are_dropped() -> None:
    data = {"a": None, "b": 0, "c": None}
    assert prompts.drop_none(data, "a", "b", "other") == {"b": 0, "c": None}
