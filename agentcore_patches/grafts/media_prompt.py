"""Prompts of token IDs with images: lands in `base_processor.py` and `tokenizer_manager.py`.

A *placeholder* is the token that stands for an image, a video or audio. The prompt of a
first turn has one for each of them; in the prompt that is prefilled, and that a second
turn begins with, it is repeated as often as the model has embeddings for the image.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

if TYPE_CHECKING:
    import torch
    from sglang.srt.managers.io_struct import GenerateReqInput
    from sglang.srt.multimodal.processors.base_processor import (
        BaseMultiModalProcessorOutput,
        MultimodalSpecialTokens,
    )


def _split_at_placeholders(
    token_ids: List[int], mm_tokens: Any
) -> List[Tuple[bool, List[int]]]:
    """The prompt in parts: whether each is one run of a placeholder, and its IDs."""
    from itertools import groupby

    placeholders = {
        getattr(mm_tokens, f"{kind}_token_id", None)
        for kind in ("image", "video", "audio")
    }
    runs = groupby(token_ids, lambda i: i if i in placeholders else None)
    return [(placeholder is not None, list(ids)) for placeholder, ids in runs]


def _collapse_placeholders(
    token_ids: List[int], mm_tokens: Any, items: List[Any]
) -> List[int]:
    """The prompt with one placeholder for each image, as its text must have them.

    What the processor makes of the rest does not count: `_restore_token_ids` puts the
    IDs back.

    Raises:
        ValueError: there are more or fewer places than images, videos and audio.
    """
    parts = _split_at_placeholders(token_ids, mm_tokens)
    runs = [ids for is_placeholder, ids in parts if is_placeholder]
    if any(isinstance(item, dict) for item in items):
        # What is processed already makes no placeholders.
        if not runs:
            raise ValueError("input_ids has no place for the images given.")
        return token_ids
    if len(runs) == len(items):
        return [
            token_id
            for is_placeholder, ids in parts
            for token_id in (ids[:1] if is_placeholder else ids)
        ]
    if sum(map(len, runs)) != len(items):
        raise ValueError(
            f"input_ids has {len(runs)} places for images, videos and audio, but "
            f"{len(items)} of these are given."
        )
    return token_ids


def _load_token_ids(
    self,
    token_ids: List[int],
    tokenizer: Any,
    multimodal_tokens: MultimodalSpecialTokens,
    image_data: Optional[List[Any]],
    video_data: Optional[List[Any]],
    audio_data: Optional[List[Any]],
    **options: Any,
) -> BaseMultiModalProcessorOutput:
    """Load what comes with a prompt of token IDs, as `load_mm_data` does.

    Raises:
        ValueError: there are more or fewer places than images, videos and audio.
    """
    items = [*(image_data or ()), *(video_data or ()), *(audio_data or ())]
    text_ids = _collapse_placeholders(token_ids, multimodal_tokens, items)
    output = self.load_mm_data(
        prompt=tokenizer.decode(text_ids),
        multimodal_tokens=multimodal_tokens,
        image_data=image_data,
        video_data=video_data,
        audio_data=audio_data,
        **options,
    )
    output.token_ids = token_ids
    return output


def _check_loaded(
    token_ids: List[int], loaded: List[Tuple[Any, Any]], mm_tokens: Any
) -> None:
    """Refuse a prompt with placeholders that the processor does not recognize.

    Args:
        token_ids: the prompt.
        loaded: what was loaded, each with its modality.
        mm_tokens: the placeholders of the model.

    Raises:
        ValueError: less was loaded than there are places.
    """
    parts = _split_at_placeholders(token_ids, mm_tokens)
    n_places = sum(is_placeholder for is_placeholder, _ in parts)
    # What is processed already may be several images in one.
    if len(loaded) < n_places and not any(isinstance(item, dict) for _, item in loaded):
        raise ValueError(
            f"input_ids has {n_places} places for images, videos and audio, but the "
            f"processor of this model finds {len(loaded)} of them: a placeholder must "
            "have the tokens around it that the chat template puts there."
        )


def _restore_token_ids(
    output: BaseMultiModalProcessorOutput,
    input_ids: torch.Tensor,
    mm_tokens: MultimodalSpecialTokens,
) -> torch.Tensor:
    """The IDs of a request with their placeholders repeated as the processor has them.

    Args:
        output: what was loaded, with the request's token IDs.
        input_ids: what the processor made of their text, of shape (tokens,).

    Raises:
        ValueError: they are repeated already, but not as often.
    """
    given = _split_at_placeholders(output.token_ids, mm_tokens)
    made = _split_at_placeholders(input_ids.tolist(), mm_tokens)
    given_runs = [ids for is_placeholder, ids in given if is_placeholder]
    made_runs = [ids for is_placeholder, ids in made if is_placeholder]
    if [ids[0] for ids in given_runs] != [ids[0] for ids in made_runs]:
        return input_ids  # Not made of runs alone; the tokenizer manager checks it.
    one_each = len(given_runs) == len(output.organize_results())
    for ids, made_ids in zip(given_runs, made_runs, strict=True):
        if one_each and len(ids) not in (1, len(made_ids)):
            raise ValueError(
                f"input_ids has {len(ids)} placeholders in a row for an image that "
                f"takes {len(made_ids)}."
            )
    runs = iter(made_runs)
    restored = [
        token_id
        for is_placeholder, ids in given
        for token_id in (next(runs) if is_placeholder else ids)
    ]
    return input_ids.new_tensor(restored)


def _is_expanded(given: List[int], prefilled: List[int], mm_tokens: Any) -> bool:
    """Whether `prefilled` is `given` with more only in the places of images."""
    if given == prefilled:
        return True
    parts = _split_at_placeholders(given, mm_tokens)
    end = 0
    for i, (is_placeholder, ids) in enumerate(parts):
        if is_placeholder:
            continue
        start = end
        if i == len(parts) - 1:
            start = len(prefilled) - len(ids)
        elif i > 0:
            last = len(prefilled) - len(ids)
            while start <= last and prefilled[start : start + len(ids)] != ids:
                start += 1
        if start < end or prefilled[start : start + len(ids)] != ids:
            return False
        if i == 0 and start != 0:
            return False
        end = start + len(ids)
    return True


def _copy_lists(values: Dict[str, Any]) -> Dict[str, Any]:
    """A copy to whose lists the engine does not add."""
    return {k: v[:] if isinstance(v, list) else v for k, v in values.items()}


async def start_stream(self, obj: GenerateReqInput, request: Any) -> Optional[str]:
    """Wait for the first output if the prompt has token IDs and images.

    Images are processed on the way to it, and a stream would have sent its status
    by then. `generate_request` goes on with this output.

    Returns: why the request is refused, None if it is not.
    """
    if obj.input_ids is None or not obj.contains_mm_input():
        return None
    outputs = self.generate_request(obj, request)
    try:
        first = await outputs.__anext__()
    except ValueError as error:
        # Of a batch, those before the one that is refused are running.
        for rid in obj.rid if isinstance(obj.rid, list) else [obj.rid]:
            if rid in self.rid_to_state:
                self.abort_request(rid)
        return str(error)
    first = {**_copy_lists(first), "meta_info": _copy_lists(first["meta_info"])}
    obj.started = (first, outputs)
    return None


async def end_stream(self, obj: GenerateReqInput) -> None:
    """End what `start_stream` began, if nobody went on with it."""
    if "started" in obj.__dict__:
        _, outputs = obj.__dict__.pop("started")
        await outputs.aclose()
