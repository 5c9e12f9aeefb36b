"""Prompts of token IDs with images: the images are expanded, all else stays."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcore_patches.grafts.media_prompt import (
    _check_loaded,
    _is_expanded,
    _load_token_ids,
    _restore_token_ids,
)

IMAGE, VIDEO = 90, 91
TOKENS = SimpleNamespace(image_token_id=IMAGE, video_token_id=VIDEO)


class Ids(list[int]):
    """As much of a tensor as the graft uses."""

    def tolist(self) -> list[int]:
        return [*self]

    def new_tensor(self, ids: list[int]) -> Ids:
        return Ids(ids)


class Tokenizer:
    """Says of each ID that it is a letter; makes others of most."""

    def decode(self, ids: list[int]) -> str:
        return " ".join(map(str, ids))


class Processor:
    def __init__(self) -> None:
        self._processor = SimpleNamespace(tokenizer=Tokenizer())

    def load_mm_data(self, prompt: str, **given: Any) -> SimpleNamespace:
        items = [item for data in given.values() if type(data) is list for item in data]
        return SimpleNamespace(
            input_text=prompt, organize_results=lambda: items, token_ids=None
        )


def loaded(token_ids: list[int], *images: Any) -> Any:
    processor = Processor()
    tokenizer = processor._processor.tokenizer
    return _load_token_ids(
        processor, token_ids, tokenizer, TOKENS, [*images], None, None
    )


def restored(token_ids: list[int], made: list[int], *images: Any) -> list[int]:
    output = loaded(token_ids, *images)
    return [*_restore_token_ids(output, Ids(made), TOKENS)]


@pytest.mark.parametrize(
    ("token_ids", "images", "text"),
    [
        ([1, IMAGE, 2], ["a"], "1 90 2"),
        ([1, IMAGE, IMAGE, IMAGE, 2], ["a"], "1 90 2"),
        ([IMAGE, IMAGE, 2, IMAGE], ["a", "b"], "90 2 90"),
        ([1, IMAGE, IMAGE], ["a", "b"], "1 90 90"),
        ([IMAGE, VIDEO, VIDEO], ["a", "b"], "90 91"),
        ([1, IMAGE, IMAGE], [{"format": "processor_output"}], "1 90 90"),
    ],
)
def test_the_processor_gets_one_placeholder_for_each_image(
    token_ids: list[int], images: list[Any], text: str
) -> None:
    output = loaded(token_ids, *images)
    assert output.input_text == text
    assert output.token_ids == token_ids


@pytest.mark.parametrize("images", [["a"], ["a", "b", "c"], ["a"] * 9])
def test_another_number_of_images_than_places_is_refused(images: list[str]) -> None:
    with pytest.raises(ValueError, match=rf"has 2 places .* {len(images)} of these"):
        loaded([IMAGE, IMAGE, 2, IMAGE, IMAGE], *images)


TEXT = st.lists(st.integers(0, 9), min_size=1, max_size=4)


@given(st.lists(st.tuples(TEXT, st.integers(1, 5)), min_size=1, max_size=4), TEXT)
def test_both_turns_are_prefilled_with_their_own_ids(
    images: list[tuple[list[int], int]], end: list[int]
) -> None:
    first_turn = [i for text, _ in images for i in (*text, IMAGE)] + end
    expanded = [i for text, n in images for i in (*text, *[IMAGE] * n)] + end
    # The text of all of it is tokenized in another way.
    made = [i for _, n in images for i in (77, *[IMAGE] * n)] + [78]
    files = ["-"] * len(images)
    for turn in (first_turn, expanded):
        assert restored(turn, made, *files) == expanded
        assert _is_expanded(turn, expanded, TOKENS)


def test_images_beside_each_other_are_expanded_together() -> None:
    made = [7, *[IMAGE] * 6]
    assert restored([1, IMAGE, IMAGE], made, "a", "b") == [1, *[IMAGE] * 6]


def test_an_image_expanded_for_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match=r"2 placeholders in a row .* takes 3"):
        restored([1, IMAGE, IMAGE], [1, IMAGE, IMAGE, IMAGE], "a")


def test_an_image_without_a_place_is_refused() -> None:
    with pytest.raises(ValueError, match=r"has 0 places .* 1 of these"):
        loaded([1, 2], "a")
    processed = {"format": "processor_output"}
    with pytest.raises(ValueError, match="no place for the images"):
        loaded([1, 2], processed)


def test_a_place_for_which_nothing_was_loaded_is_refused() -> None:
    two = [1, IMAGE, 2, IMAGE]
    with pytest.raises(ValueError, match=r"has 2 places .* finds 1 of them"):
        _check_loaded(two, [("image", "a")], TOKENS)
    _check_loaded(two, [("image", "a"), ("image", "b")], TOKENS)
    # Frames of one image; two images that are processed already, in one.
    _check_loaded(two, [("image", "a")] * 3, TOKENS)
    _check_loaded(two, [("image", {"format": "processor_output"})], TOKENS)


def test_what_is_not_made_of_runs_is_left_to_the_last_check() -> None:
    made = [1, IMAGE, 5, IMAGE, 2]
    assert restored([1, IMAGE, 2], made, "a") == made


@pytest.mark.parametrize(
    ("prefilled", "kept"),
    [
        ([1, 2, IMAGE, 3, 4, IMAGE, 5], True),
        ([1, 2, IMAGE, IMAGE, 3, 4, IMAGE, IMAGE, 5], True),
        ([1, 2, 8, IMAGE, 9, IMAGE, 8, 3, 4, 8, IMAGE, 5], True),
        ([1, 7, IMAGE, 3, 4, IMAGE, 5], False),
        ([0, 1, 2, IMAGE, 3, 4, IMAGE, 5], False),
        ([1, 2, IMAGE, 3, 7, IMAGE, 5], False),
        ([1, 2, IMAGE, 3, 4, IMAGE, 5, 6], False),
        ([1, 2, IMAGE, 3, 4, IMAGE], False),
        ([], False),
    ],
)
def test_texts_between_images_are_kept_or_it_is_noticed(
    prefilled: list[int], kept: bool
) -> None:
    given = [1, 2, IMAGE, 3, 4, IMAGE, 5]
    assert _is_expanded(given, prefilled, TOKENS) is kept


@pytest.mark.parametrize("tokens", [TOKENS, None])
def test_a_prompt_without_a_place_for_the_image_is_taken_only_as_it_is(
    tokens: Any,
) -> None:
    assert _is_expanded([1, 2], [1, 2], tokens)
    assert not _is_expanded([1, 2], [1, 2, 3], tokens)
    assert not _is_expanded([1, 2], [3, 1, 2], tokens)


def test_an_image_at_either_end_has_no_text_to_hold_on_to() -> None:
    assert _is_expanded([IMAGE, 1, IMAGE], [IMAGE, IMAGE, 1, IMAGE, IMAGE], TOKENS)
    assert not _is_expanded([IMAGE, 1, IMAGE], [IMAGE, 2, IMAGE], TOKENS)
