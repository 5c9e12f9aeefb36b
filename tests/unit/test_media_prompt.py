"""Prompts of token IDs with images: only the images are expanded."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcore_patches.landing import images, release, vllm_images
from agentcore_patches.landing.images import is_expanded
from agentcore_patches.landing.vllm_http import BadRequest

IMAGE, VIDEO = 90, 91
TOKENS = SimpleNamespace(image_token_id=IMAGE, video_token_id=VIDEO)


class Ids(list[int]):
    """The methods of a tensor that are used."""

    def tolist(self) -> list[int]:
        return [*self]

    def new_tensor(self, ids: list[int]) -> Ids:
        return Ids(ids)


class Processor:
    """Loads like SGLang, without a model; decodes each ID to its number."""

    @images.keep_token_ids
    def load_mm_data(
        self,
        prompt: Any,
        multimodal_tokens: Any,
        image_data: Any = None,
        video_data: Any = None,
        audio_data: Any = None,
        return_text: bool = True,
    ) -> SimpleNamespace:
        input_ids = prompt if isinstance(prompt, list) else None
        text = prompt if input_ids is None else " ".join(map(str, prompt))
        items = [*(image_data or ()), *(video_data or ())]
        return SimpleNamespace(
            input_text=text,
            input_ids=input_ids,
            organize_results=lambda: items,
            token_ids=None,
        )


def loaded(token_ids: list[int], *files: Any) -> Any:
    return Processor().load_mm_data(token_ids, TOKENS, [*files])


def restored(token_ids: list[int], made: list[int], *files: Any) -> list[int]:
    ids: Any = Ids(made)
    return [*images.restore_token_ids(loaded(token_ids, *files), ids, TOKENS)]


@pytest.mark.parametrize(
    ("token_ids", "files", "text"),
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
    monkeypatch: pytest.MonkeyPatch, token_ids: list[int], files: list[Any], text: str
) -> None:
    output = loaded(token_ids, *files)
    assert output.input_text == text
    assert output.token_ids == token_ids
    monkeypatch.setattr(release, "LOADED_HAVE_IDS", True)
    output = loaded(token_ids, *files)
    assert output.token_ids == output.input_ids == token_ids


def test_an_async_loader_is_decorated_too() -> None:
    @images.keep_token_ids
    async def load(
        prompt: Any,
        multimodal_tokens: Any,
        image_data: Any,
        video_data: Any = None,
        audio_data: Any = None,
        return_text: bool = True,
    ) -> Any:
        return SimpleNamespace(input_text=prompt, token_ids=None)

    prompt = [1, IMAGE, IMAGE]
    output = asyncio.run(load(prompt, multimodal_tokens=TOKENS, image_data=["a"]))
    assert output.input_text == [1, IMAGE]
    assert output.token_ids is prompt
    text = asyncio.run(load("text", TOKENS, image_data=["a"]))
    assert (text.input_text, text.token_ids) == ("text", None)


def test_a_prompt_that_was_not_decoded_is_left_alone() -> None:
    @images.keep_token_ids
    def load(
        prompt: Any,
        multimodal_tokens: Any,
        image_data: Any,
        video_data: Any = None,
        audio_data: Any = None,
    ) -> Any:
        return SimpleNamespace(input_text="", input_ids=prompt, token_ids=None)

    processed = [{"format": "processor_output"}]
    prompt = [1, IMAGE, IMAGE]
    output = load(prompt, TOKENS, processed)
    assert output.token_ids is None
    assert output.input_ids is prompt


@pytest.mark.parametrize("files", [["a"], ["a", "b", "c"], ["a"] * 9])
def test_a_wrong_number_of_images_is_refused(files: list[str]) -> None:
    with pytest.raises(
        ValueError, match=rf"has 2 placeholders .* {len(files)} of these"
    ):
        loaded([IMAGE, IMAGE, 2, IMAGE, IMAGE], *files)


TEXT = st.lists(st.integers(0, 9), min_size=1, max_size=4)


@given(st.lists(st.tuples(TEXT, st.integers(1, 5)), min_size=1, max_size=4), TEXT)
def test_both_turns_are_prefilled_with_their_own_ids(
    media: list[tuple[list[int], int]], end: list[int]
) -> None:
    first_turn = [i for text, _ in media for i in (*text, IMAGE)] + end
    expanded = [i for text, n in media for i in (*text, *[IMAGE] * n)] + end
    # The text of both turns together is tokenized differently.
    made = [i for _, n in media for i in (77, *[IMAGE] * n)] + [78]
    files = ["-"] * len(media)
    for turn in (first_turn, expanded):
        assert restored(turn, made, *files) == expanded
        assert is_expanded(turn, expanded, TOKENS)


def test_adjacent_images_are_expanded_together() -> None:
    made = [7, *[IMAGE] * 6]
    assert restored([1, IMAGE, IMAGE], made, "a", "b") == [1, *[IMAGE] * 6]


def test_an_image_expanded_for_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match=r"2 placeholders in a row .* takes 3"):
        restored([1, IMAGE, IMAGE], [1, IMAGE, IMAGE, IMAGE], "a")


def test_an_image_without_a_placeholder_is_refused() -> None:
    with pytest.raises(ValueError, match=r"has 0 placeholders .* 1 of these"):
        loaded([1, 2], "a")
    processed = {"format": "processor_output"}
    with pytest.raises(ValueError, match="no placeholder for the images"):
        loaded([1, 2], processed)


def test_a_placeholder_without_an_image_is_refused() -> None:
    output: Any = SimpleNamespace(token_ids=[1, IMAGE, 2, IMAGE])

    def check(*found: tuple[str, Any]) -> None:
        images.check_loaded(output, [*found], TOKENS)

    with pytest.raises(ValueError, match=r"has 2 placeholders .* finds 1 of them"):
        check(("image", "a"))
    check(("image", "a"), ("image", "b"))
    # Frames of one image; two preprocessed images in one.
    check(*[("image", "a")] * 3)
    check(("image", {"format": "processor_output"}))


def test_a_text_prompt_is_neither_checked_nor_restored() -> None:
    output: Any = SimpleNamespace(token_ids=None)
    images.check_loaded(output, [], TOKENS)
    made: Any = Ids([1, IMAGE])
    assert images.restore_token_ids(output, made, TOKENS) is made


def test_interrupted_placeholder_runs_are_left_to_the_last_check() -> None:
    made = [1, IMAGE, 5, IMAGE, 2]
    assert restored([1, IMAGE, 2], made, "a") == made


TEXTS = [1, 2, IMAGE, 3, 4, IMAGE, 5]


@pytest.mark.parametrize(
    ("given", "prefilled", "kept"),
    [
        (TEXTS, [1, 2, IMAGE, 3, 4, IMAGE, 5], True),
        (TEXTS, [1, 2, IMAGE, IMAGE, 3, 4, IMAGE, IMAGE, 5], True),
        (TEXTS, [1, 2, 8, IMAGE, 9, IMAGE, 8, 3, 4, 8, IMAGE, 5], True),
        (TEXTS, [1, 7, IMAGE, 3, 4, IMAGE, 5], False),
        (TEXTS, [0, 1, 2, IMAGE, 3, 4, IMAGE, 5], False),
        (TEXTS, [1, 2, IMAGE, 3, 7, IMAGE, 5], False),
        (TEXTS, [1, 2, IMAGE, 3, 4, IMAGE, 5, 6], False),
        (TEXTS, [1, 2, IMAGE, 3, 4, IMAGE], False),
        (TEXTS, [], False),
        # An image at either end has no adjacent text to match.
        ([IMAGE, 1, IMAGE], [IMAGE, IMAGE, 1, IMAGE, IMAGE], True),
        ([IMAGE, 1, IMAGE], [IMAGE, 2, IMAGE], False),
        # A prompt without placeholders must be unchanged.
        ([1, 2], [1, 2], True),
        ([1, 2], [1, 2, 3], False),
        ([1, 2], [3, 1, 2], False),
    ],
)
def test_changed_text_between_images_is_noticed(
    given: list[int], prefilled: list[int], kept: bool
) -> None:
    assert is_expanded(given, prefilled, TOKENS) is kept
    if IMAGE not in given:
        assert is_expanded(given, prefilled, None) is kept


def expand(n: int) -> float:
    """Return the CPU seconds to compare two expanded prompts with `n` IDs of text."""
    text = [i % 80 for i in range(n)]
    image = [IMAGE] * (n // 12)
    given = [1, IMAGE, *text, *image, *text, 2]
    prefilled = [1, *image, *text, *image, *text, 2]
    start = time.process_time()
    assert is_expanded(given, prefilled, TOKENS)
    assert images.split_at_placeholders(prefilled, TOKENS)[-2] == (True, image)
    return time.process_time() - start


def test_the_time_to_compare_prompts_grows_with_their_length() -> None:
    least = [min(expand(n) for _ in range(7)) for n in (50_000, 100_000)]
    assert least[1] < 2.3 * least[0]


def test_ids_other_than_placeholders_must_be_prefilled_unchanged() -> None:
    manager: Any = SimpleNamespace(mm_processor=SimpleNamespace(mm_tokens=TOKENS))
    obj = SimpleNamespace(input_ids=[1, IMAGE, 2])
    images.check_prefilled(manager, obj, obj.input_ids)
    images.check_prefilled(manager, obj, [1, IMAGE, IMAGE, 2])
    with pytest.raises(ValueError, match="cannot be used unchanged"):
        images.check_prefilled(manager, obj, [1, IMAGE, IMAGE, 3])
    images.check_prefilled(manager, SimpleNamespace(input_ids=None), [1, 2])


@pytest.mark.parametrize("kind", [dict, SimpleNamespace])
def test_each_request_has_images_of_its_own(kind: Any) -> None:
    item = SimpleNamespace(feature="pixels")
    inputs = kind(mm_items=[item], offset=1)
    request = SimpleNamespace(mm_inputs=inputs)
    images.own_images(request)
    own: Any = request.mm_inputs
    fields = own if kind is dict else vars(own)
    assert own is not inputs
    assert fields == {"mm_items": [item], "offset": 1}
    assert fields["mm_items"][0] is not item


@pytest.mark.parametrize(
    "request_", [SimpleNamespace(mm_inputs=None), SimpleNamespace()]
)
def test_a_request_without_images_is_left_alone(request_: Any) -> None:
    before = {**vars(request_)}
    images.own_images(request_)
    assert vars(request_) == before


class Manager:
    """Generates outputs, and records if the generator was closed."""

    def __init__(self) -> None:
        self.is_closed = False

    async def generate_request(self, obj: Any, request: Any) -> AsyncIterator[Any]:
        try:
            while True:
                yield {"output_ids": [0], "meta_info": {}}
        finally:
            self.is_closed = True


def stream(**fields: Any) -> Any:
    given = {"stream": True, "input_ids": [1]}
    return SimpleNamespace(contains_mm_input=lambda: True, **(given | fields))


@pytest.mark.parametrize(
    "obj",
    [
        stream(stream=False),
        stream(input_ids=None),
        SimpleNamespace(stream=True, input_ids=[1], contains_mm_input=lambda: False),
    ],
)
def test_only_token_id_streams_with_images_are_started_early(obj: Any) -> None:
    manager: Any = Manager()
    assert asyncio.run(images.start_stream(manager, obj, None)) is None
    assert images.started(obj) is None


def test_an_unread_stream_is_closed() -> None:
    manager: Any = Manager()
    obj = stream()

    async def run() -> None:
        await images.start_stream(manager, obj, None)
        assert not manager.is_closed
        await images.end_stream(obj)
        assert manager.is_closed
        await images.end_stream(obj)

    asyncio.run(run())


def processor() -> Any:
    return SimpleNamespace(mm_processor=SimpleNamespace(mm_tokens=TOKENS))


def test_the_offsets_of_images_are_returned_unless_images_adjoin() -> None:
    prompt = [1, *[IMAGE] * 3, 2, *[IMAGE] * 2]
    found = vllm_images.placeholders(processor(), prompt, 2)
    assert found == {"image": [{"offset": 1, "length": 3}, {"offset": 5, "length": 2}]}
    assert vllm_images.placeholders(processor(), [1, *[IMAGE] * 5], 2) is None
    assert vllm_images.placeholders(processor(), [], 1) is None


def test_a_text_model_rejects_images() -> None:
    manager: Any = SimpleNamespace(mm_processor=None)
    part = {"type": "image_url", "url": "a"}
    assert vllm_images.read(manager, []) == []
    with pytest.raises(
        BadRequest, match=r"^content_parts: this model does not support images"
    ):
        vllm_images.read(manager, [part])
    assert vllm_images.read(processor(), [part]) == ["a"]


def test_an_unknown_field_of_a_content_part_is_refused() -> None:
    image = {"type": "image_url", "image_url": {"url": "a"}, "uuid": None}
    assert vllm_images.read(processor(), [image]) == ["a"]
    with pytest.raises(BadRequest, match=r"content_parts\[0\]: uuid is not supported"):
        vllm_images.read(processor(), [{**image, "uuid": "b"}])
