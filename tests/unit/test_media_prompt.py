"""Prompts of token IDs with images: only the images are expanded."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from agentcore_patches.landing.http import images
from agentcore_patches.landing.http.images import is_expanded
from agentcore_patches.landing.vllm_api import content_parts
from agentcore_patches.landing.vllm_api.bodies import BadRequest

IMAGE, VIDEO = 90, 91
TOKENS: Any = SimpleNamespace(
    image_token_id=IMAGE, video_token_id=VIDEO, audio_token_id=None
)


def test_an_async_loader_is_decorated_too() -> None:
    @images.keep_token_ids
    async def load(
        prompt: Any,
        multimodal_tokens: Any,
        image_data: Any,
        video_data: Any = None,
        audio_data: Any = None,
    ) -> Any:
        return SimpleNamespace(input_text=prompt, token_ids=None)

    prompt = [1, IMAGE, IMAGE]
    output = asyncio.run(load(prompt, multimodal_tokens=TOKENS, image_data=["a"]))
    assert output.input_text == [1, IMAGE]
    assert output.token_ids is prompt
    text = asyncio.run(load("text", TOKENS, image_data=["a"]))
    assert (text.input_text, text.token_ids) == ("text", None)


TEXTS = [1, 2, IMAGE, 3, 4, IMAGE, 5]


@pytest.mark.parametrize(
    ("given", "prefilled", "kept"),
    [
        (TEXTS, [1, 2, IMAGE, 3, 4, IMAGE, 5], True),
        (TEXTS, [1, 2, IMAGE, IMAGE, 3, 4, IMAGE, IMAGE, 5], True),
        (TEXTS, [1, 2, 8, IMAGE, 9, IMAGE, 8, 3, 4, 8, IMAGE, 5], True),
        (TEXTS, [0, 1, 2, IMAGE, 3, 4, IMAGE, 5], False),
        (TEXTS, [1, 2, IMAGE, 3, 7, IMAGE, 5], False),
        (TEXTS, [1, 2, IMAGE, 3, 4, IMAGE, 5, 6], False),
        (TEXTS, [], False),
        # An image at either end has no adjacent text to match.
        ([IMAGE, 1, IMAGE], [IMAGE, IMAGE, 1, IMAGE, IMAGE], True),
        ([IMAGE, 1, IMAGE], [IMAGE, 2, IMAGE], False),
        # A prompt without placeholders must be unchanged.
        ([1, 2], [1, 2], True),
        ([1, 2], [1, 2, 3], False),
    ],
)
def test_changed_text_between_images_is_noticed(
    given: list[int], prefilled: list[int], kept: bool
) -> None:
    assert is_expanded(given, prefilled, TOKENS) is kept
    if IMAGE not in given:
        assert is_expanded(given, prefilled, None) is kept


class CountedIds(list[int]):
    """A prompt that counts how many of its token IDs are read."""

    n_read = 0

    def __iter__(self) -> Iterator[int]:
        self.n_read += len(self)
        return super().__iter__()

    def __getitem__(self, where: Any) -> Any:
        found = super().__getitem__(where)
        self.n_read += len(found) if isinstance(where, slice) else 1
        return found

    def index(self, token_id: int, start: Any = 0, *stop: Any) -> int:
        try:
            found = super().index(token_id, start, *stop)
        except ValueError:
            self.n_read += len(self) - start
            raise
        self.n_read += found + 1 - start
        return found


def test_the_work_to_compare_prompts_grows_with_their_length() -> None:
    text = [i % 80 for i in range(4_000)]
    image = [IMAGE] * 300
    given = CountedIds([1, IMAGE, *text, *image, *text, 2])
    prefilled = CountedIds([1, *image, *text, *image, *text, 2])
    assert is_expanded(given, prefilled, TOKENS)
    assert images.split_at_placeholders(prefilled, TOKENS)[-2] == (True, image)
    assert 0 < given.n_read < 10 * len(given)
    assert 0 < prefilled.n_read < 10 * len(prefilled)


MANAGER: Any = SimpleNamespace(mm_processor=SimpleNamespace(mm_tokens=TOKENS))


def test_the_offsets_of_images_are_returned_unless_images_adjoin() -> None:
    prompt = [1, *[IMAGE] * 3, 2, *[IMAGE] * 2]
    found = content_parts.placeholders(MANAGER, prompt, 2)
    assert found == {"image": [{"offset": 1, "length": 3}, {"offset": 5, "length": 2}]}
    assert content_parts.placeholders(MANAGER, [1, *[IMAGE] * 5], 2) is None
    assert content_parts.placeholders(MANAGER, [], 1) is None


URL = {"type": "image_url", "url": "a"}


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ("an image", "content_parts must be a list"),
        ([7], r"content_parts\[0\] must be an object"),
        ([URL, {"type": "video_url", "url": "a"}], r"content_parts\[1\] must be"),
        ([{"type": "image_url"}], r"content_parts\[0\] must have the image's url"),
        ([{"type": "image_url", "image_url": {"url": 7}}], "the image's url"),
        ([{**URL, "detail": "high"}], "detail is not supported"),
        ([{**URL, "uuid": "b"}], r"content_parts\[0\]: uuid is not supported"),
    ],
)
def test_a_bad_content_part_is_refused(parts: Any, said: str) -> None:
    of_openai = {"type": "image_url", "image_url": {"url": "b", "detail": "auto"}}
    by_text = {"type": "image_url", "image_url": "c"}
    taken = content_parts.read(MANAGER, [{**URL, "uuid": None}, of_openai, by_text])
    assert taken == ["a", "b", "c"]
    with pytest.raises(BadRequest, match=said):
        content_parts.read(MANAGER, parts)
    text_model: Any = SimpleNamespace(mm_processor=None)
    with pytest.raises(BadRequest, match=r"does not support images|a list"):
        content_parts.read(text_model, parts)


def test_ids_other_than_placeholders_must_be_prefilled_unchanged() -> None:
    obj: Any = SimpleNamespace(input_ids=[1, IMAGE, 2])
    images.check_prefilled(MANAGER, obj, [1, IMAGE, IMAGE, 2])
    with pytest.raises(ValueError, match="cannot be used unchanged"):
        images.check_prefilled(MANAGER, obj, [1, IMAGE, IMAGE, 3])
    obj.input_ids = None
    images.check_prefilled(MANAGER, obj, [1, 2])
