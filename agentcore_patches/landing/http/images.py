"""Prompts of token IDs with images: only placeholders are expanded.

A *placeholder* is the token that stands for an image, a video or audio. The prompt of a
first turn has one placeholder for each image. In the prompt that is prefilled, with
which the second turn starts, a placeholder is repeated once for each embedding.
"""

from __future__ import annotations

import copy
import functools
import inspect
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from .. import release
from . import exchanges, request_fields

if TYPE_CHECKING:
    import torch
    from sglang.srt.managers.io_struct import (
        GenerateReqInput,
        TokenizedEmbeddingReqInput,
        TokenizedGenerateReqInput,
    )
    from sglang.srt.managers.tokenizer_manager import TokenizerManager
    from sglang.srt.multimodal.processors.base_processor import (
        BaseMultiModalProcessorOutput,
        MultimodalSpecialTokens,
    )

    from .request_fields import EngineRequest


class PromptError(ValueError):
    """A prompt of token IDs that does not fit its images.

    Attributes:
        text: what is wrong, to follow the name of the field with the prompt.
    """

    def __init__(self, text: str) -> None:
        super().__init__(f"input_ids {text}")
        self.text = text


def split_at_placeholders(
    token_ids: list[int], mm_tokens: MultimodalSpecialTokens | None
) -> list[tuple[bool, list[int]]]:
    """Split a prompt into parts: (is a run of one placeholder, token IDs)."""
    parts = []
    end = 0
    for start, stop in _runs_in(token_ids, mm_tokens):
        if end < start:
            parts.append((False, token_ids[end:start]))
        parts.append((True, token_ids[start:stop]))
        end = stop
    if end < len(token_ids):
        parts.append((False, token_ids[end:]))
    return parts


def _runs_in(
    token_ids: list[int], mm_tokens: MultimodalSpecialTokens | None
) -> list[tuple[int, int]]:
    """Return the start and end of each run of one placeholder in a prompt."""
    runs = []
    for placeholder in _ids_of(mm_tokens):
        end = 0
        with suppress(ValueError):
            while True:
                start = token_ids.index(placeholder, end)
                end = start + 1
                while end < len(token_ids) and token_ids[end] == placeholder:
                    end += 1
                runs.append((start, end))
    return sorted(runs)


def _ids_of(mm_tokens: MultimodalSpecialTokens | None) -> set[Any]:
    """Return the token IDs of placeholders, None for a kind that the model lacks."""
    if mm_tokens is None:
        return set()
    return {
        mm_tokens.image_token_id,
        mm_tokens.video_token_id,
        mm_tokens.audio_token_id,
    }


def _mm_tokens(manager: TokenizerManager) -> MultimodalSpecialTokens | None:
    """Return the placeholders of the model's processor, None without any."""
    # Some processors lack the attribute.
    found: MultimodalSpecialTokens | None = getattr(
        manager.mm_processor, "mm_tokens", None
    )
    return found


def placeholders_of(manager: TokenizerManager) -> set[Any]:
    """Return the token IDs of the processor's placeholders, None for a missing kind."""
    return _ids_of(_mm_tokens(manager))


def ranges_of(manager: TokenizerManager, token_ids: list[int]) -> list[tuple[int, int]]:
    """Return the offset and length of each run of one placeholder in a prompt."""
    runs = _runs_in(token_ids, _mm_tokens(manager))
    return [(start, end - start) for start, end in runs]


def count_matched(
    manager: TokenizerManager, expanded: list[int], token_ids: list[int]
) -> int:
    """Count the token IDs that two prompts have in common at their start.

    Args:
        expanded: the prompt whose IDs are counted.
        token_ids: the other prompt; it may have one placeholder for each image.
    """
    mm_tokens = _mm_tokens(manager)
    n_matched = 0
    for (is_placeholder, ids), (_, other) in zip(
        split_at_placeholders(expanded, mm_tokens),
        split_at_placeholders(token_ids, mm_tokens),
        strict=False,
    ):
        if (is_placeholder and ids[0] == other[0]) or ids == other:
            n_matched += len(ids)
        else:
            pairs = zip(ids, other, strict=False)
            return n_matched + sum(1 for _ in takewhile(lambda p: p[0] == p[1], pairs))
    return n_matched


def collapse_placeholders(
    token_ids: list[int], mm_tokens: MultimodalSpecialTokens | None, items: list[Any]
) -> list[int]:
    """Return the prompt with one placeholder for each image, as the processor expects.

    The processor may change the other IDs: `restore_token_ids` puts them back.

    Raises:
        PromptError: the number of placeholders is not that of images, videos and audio.
    """
    parts = split_at_placeholders(token_ids, mm_tokens)
    runs = [ids for is_placeholder, ids in parts if is_placeholder]
    if any(isinstance(item, dict) for item in items):
        # Preprocessed items do not expand placeholders.
        if not runs:
            raise PromptError("has no placeholder for the images given.")
        return token_ids
    if len(runs) == len(items):
        return [
            token_id
            for is_placeholder, ids in parts
            for token_id in (ids[:1] if is_placeholder else ids)
        ]
    if sum(map(len, runs)) != len(items):
        raise PromptError(
            f"has {len(runs)} placeholders for images, videos and audio, but "
            f"{len(items)} of these are given."
        )
    return token_ids


def keep_token_ids(load: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate `load_mm_data` to keep a prompt that is given as token IDs.

    SGLang decodes such a prompt and tokenizes the text again, and it expands the image
    tokens of a second turn a second time. A file that cannot be read is an error of the
    request; some releases report it as a server error.

    The decorated function raises:
        PromptError: the number of placeholders is not that of images, videos and audio.
        ValueError: an image, video or audio cannot be read.
    """
    signature = inspect.signature(load)

    def collapse(call: inspect.BoundArguments) -> list[int] | None:
        """Collapse the placeholders of the call; return its prompt if it is of IDs."""
        call.apply_defaults()
        prompt = call.arguments["prompt"]
        # Some releases have no `return_text` and always return the text.
        if not isinstance(prompt, list) or not call.arguments.get("return_text", True):
            return None
        items = [
            *(call.arguments["image_data"] or ()),
            *(call.arguments["video_data"] or ()),
            *(call.arguments["audio_data"] or ()),
        ]
        tokens = call.arguments["multimodal_tokens"]
        call.arguments["prompt"] = collapse_placeholders(prompt, tokens, items)
        return prompt

    def keep(
        output: BaseMultiModalProcessorOutput, prompt: list[int] | None
    ) -> BaseMultiModalProcessorOutput:
        # Without text, all images are preprocessed and SGLang leaves the IDs alone.
        if prompt is not None and output.input_text:
            output.token_ids = prompt
            if release.LOADED_HAVE_IDS:
                output.input_ids = prompt
        return output

    @functools.wraps(load)
    def load_now(*args: Any, **kwargs: Any) -> Any:
        call = signature.bind(*args, **kwargs)
        prompt = collapse(call)
        with _readable(prompt):
            output = load(*call.args, **call.kwargs)
        return keep(output, prompt)

    @functools.wraps(load)
    async def load_async(*args: Any, **kwargs: Any) -> Any:
        call = signature.bind(*args, **kwargs)
        prompt = collapse(call)
        with _readable(prompt):
            output = await load(*call.args, **call.kwargs)
        return keep(output, prompt)

    return load_async if inspect.iscoroutinefunction(load) else load_now


@contextmanager
def _readable(prompt: list[int] | None) -> Iterator[None]:
    """Blame the request for an image that cannot be read, if the prompt is of IDs."""
    try:
        yield
    except RuntimeError as error:
        if prompt is None:
            raise
        raise ValueError(str(error)) from error


def check_loaded(
    output: BaseMultiModalProcessorOutput,
    loaded: list[tuple[Any, Any]],
    mm_tokens: MultimodalSpecialTokens | None,
) -> None:
    """Refuse a prompt with placeholders that the processor does not recognize.

    Args:
        output: result of loading, with the request's token IDs if it has any.
        loaded: pairs of modality and item.

    Raises:
        PromptError: there are fewer items than placeholders.
    """
    if output.token_ids is None:
        return
    n_places = len(_runs_in(output.token_ids, mm_tokens))
    # One preprocessed item may hold several images.
    if len(loaded) < n_places and not any(isinstance(item, dict) for _, item in loaded):
        raise PromptError(
            f"has {n_places} placeholders for images, videos and audio, but "
            f"the processor of this model finds {len(loaded)} of them: one must "
            "be surrounded by the tokens that the chat template writes around it."
        )


def restore_token_ids(
    output: BaseMultiModalProcessorOutput,
    input_ids: torch.Tensor,
    mm_tokens: MultimodalSpecialTokens,
) -> torch.Tensor:
    """Return the request's token IDs with placeholders expanded as the processor did.

    Args:
        output: result of loading, with the request's token IDs if it has any.
        input_ids: the processor's token IDs, of shape (tokens,).

    Raises:
        PromptError: the placeholders are expanded already, to another length.
    """
    if output.token_ids is None:
        return input_ids
    given = split_at_placeholders(output.token_ids, mm_tokens)
    made = split_at_placeholders(input_ids.tolist(), mm_tokens)
    given_runs = [ids for is_placeholder, ids in given if is_placeholder]
    made_runs = [ids for is_placeholder, ids in made if is_placeholder]
    if [ids[0] for ids in given_runs] != [ids[0] for ids in made_runs]:
        return input_ids  # The tokenizer manager checks these with `check_prefilled`.
    one_each = len(given_runs) == len(output.organize_results())
    for ids, made_ids in zip(given_runs, made_runs, strict=True):
        if one_each and len(ids) not in (1, len(made_ids)):
            raise PromptError(
                f"has {len(ids)} placeholders in a row for an image that "
                f"takes {len(made_ids)}."
            )
    runs = iter(made_runs)
    restored = [
        token_id
        for is_placeholder, ids in given
        for token_id in (next(runs) if is_placeholder else ids)
    ]
    return input_ids.new_tensor(restored)


def is_expanded(
    given: list[int], prefilled: list[int], mm_tokens: MultimodalSpecialTokens | None
) -> bool:
    """True if `prefilled` differs from `given` only in expanded placeholders."""
    if given == prefilled:
        return True
    parts = split_at_placeholders(given, mm_tokens)
    searched = _as_text(prefilled)
    end = 0
    for i, (is_placeholder, ids) in enumerate(parts):
        if is_placeholder:
            continue
        start = end
        if i == len(parts) - 1:
            start = len(prefilled) - len(ids)
        elif i > 0:
            start = searched.find(_as_text(ids), end)
        if start < end or prefilled[start : start + len(ids)] != ids:
            return False
        if i == 0 and start != 0:
            return False
        end = start + len(ids)
    return True


def _as_text(token_ids: list[int]) -> str:
    """Return a string with a character for each token ID, for a search in linear time.

    Only placeholders may be no code points; they all become the last one.
    """
    last = sys.maxunicode
    return "".join([chr(i if 0 <= i <= last else last) for i in token_ids])


def check_prefilled(
    manager: TokenizerManager, obj: EngineRequest, input_ids: list[int]
) -> None:
    """Reject a prompt of token IDs that the processor changed.

    Args:
        input_ids: the IDs that the engine would prefill.

    Raises:
        PromptError: IDs other than placeholders were changed.
    """
    if obj.input_ids is None or obj.input_ids is input_ids:
        return
    if not is_expanded(obj.input_ids, input_ids, _mm_tokens(manager)):
        raise PromptError(
            "cannot be used unchanged with these images: the "
            "processor of this model tokenizes their text to other IDs."
        )


def own_images(
    tokenized_obj: TokenizedGenerateReqInput | TokenizedEmbeddingReqInput,
) -> None:
    """Copy the image items of a request, since sending removes their pixels.

    The requests of n > 1 share their items: the second one would crash the scheduler.
    """
    mm_inputs = request_fields.read(tokenized_obj, "mm_inputs")
    if not mm_inputs:
        return
    tokenized_obj.mm_inputs = mm_inputs = copy.copy(mm_inputs)
    if isinstance(mm_inputs, dict):
        items = mm_inputs.get("mm_items", [])
        mm_inputs["mm_items"] = [copy.copy(item) for item in items]
    else:
        mm_inputs.mm_items = [copy.copy(item) for item in mm_inputs.mm_items]


def _copy_lists(values: dict[str, Any]) -> dict[str, Any]:
    """Copy a dict and its lists, since the engine appends to them."""
    return {k: v[:] if isinstance(v, list) else v for k, v in values.items()}


async def start_stream(
    manager: TokenizerManager, obj: GenerateReqInput, request: Any
) -> str | None:
    """Wait for the first output of a stream whose prompt has token IDs and images.

    Images are processed before the first output. Without waiting for it, a stream would
    have sent its status before a bad prompt can be rejected. `generate_request` then
    continues with this output.

    Returns: the error of a rejected request, None if it is accepted.
    """
    if not obj.stream or obj.input_ids is None or not obj.contains_mm_input():
        return None
    outputs = manager.generate_request(obj, request)
    try:
        first = await outputs.__anext__()
    except ValueError as error:
        # The requests of the batch before the rejected one are running.
        for rid in obj.rid if isinstance(obj.rid, list) else [obj.rid]:
            if rid in manager.rid_to_state:
                manager.abort_request(rid)
        return str(error)
    first = {**_copy_lists(first), "meta_info": _copy_lists(first["meta_info"])}
    exchanges.note(obj, started=exchanges.Started(first, outputs))
    return None


def take_started(obj: EngineRequest) -> AsyncIterator[Any] | None:
    """Return the outputs of a stream that `start_stream` started, None without any."""
    started = exchanges.call_of(obj).started
    if started is None:
        return None
    exchanges.note(obj, started=None)
    return _all_outputs(*started)


async def _all_outputs(first: Any, outputs: AsyncIterator[Any]) -> AsyncIterator[Any]:
    yield first
    async for output in outputs:
        yield output


async def end_stream(obj: GenerateReqInput) -> None:
    """Close a stream that `start_stream` started and that has no reader."""
    started = exchanges.call_of(obj).started
    if started is not None:
        exchanges.note(obj, started=None)
        await started.others.aclose()
