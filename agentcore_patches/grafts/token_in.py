"""Lands in `entrypoints/openai/serving_chat.py`, for the patch `tito`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, List, Optional

if TYPE_CHECKING:
    from sglang.srt.entrypoints.openai.protocol import (
        ChatCompletionRequest,
        MessageProcessingResult,
    )
    from sglang.srt.parser.conversation import generate_chat_conv
    from sglang.srt.parser.jinja_template_utils import (
        process_content_for_template_format,
    )


def _check_input_ids(
    input_ids: List[Any], vocab_size: int, max_len: int
) -> Optional[str]:
    """What is wrong with the token IDs of a prompt, None if nothing is.

    Args:
        input_ids: the IDs as the request gives them.
        vocab_size: IDs are from 0 to this, exclusive.
        max_len: how many IDs the engine takes.
    """
    if not input_ids:
        return "input_ids cannot be empty."
    if set(map(type, input_ids)) != {int}:
        position, bad = next(
            (i, value) for i, value in enumerate(input_ids) if type(value) is not int
        )
        return (
            f"input_ids must be a flat list of integers, but input_ids[{position}] is "
            f"of type {type(bad).__name__}."
        )
    if min(input_ids) < 0 or max(input_ids) >= vocab_size:
        position = next(
            i for i, value in enumerate(input_ids) if not 0 <= value < vocab_size
        )
        return (
            f"input_ids must be from 0 to {vocab_size - 1} (the vocabulary has "
            f"{vocab_size} tokens), but input_ids[{position}] is not."
        )
    if len(input_ids) > max_len:
        return (
            f"input_ids has {len(input_ids)} tokens, which is longer than the "
            f"{max_len} that the model's context length or the KV cache leaves for a "
            "prompt."
        )
    return None


def _validate_input_ids(self, request: ChatCompletionRequest) -> Optional[str]:
    """What forbids a prompt given as `input_ids`, None if nothing does."""
    manager = self.tokenizer_manager
    if manager.server_args.skip_tokenizer_init:
        return (
            "input_ids in chat completions need a tokenizer for the answer, but "
            "the server runs with --skip-tokenizer-init. Send them to /generate."
        )
    max_len = manager.context_len - manager.num_reserved_tokens - 1
    if manager.max_req_input_len is not None:
        max_len = min(max_len, manager.max_req_input_len - 1)
    if manager.server_args.allow_auto_truncate:
        max_len = len(request.input_ids)
    vocab_size = manager.model_config.vocab_size
    return _check_input_ids(request.input_ids, vocab_size, max_len)


def _process_input_ids(
    self,
    request: ChatCompletionRequest,
) -> MessageProcessingResult:
    """Take the prompt as it is; of messages and template, all but their text."""
    image_data: List[Any] = []
    video_data: List[Any] = []
    audio_data: List[Any] = []
    modalities: List[str] = []
    stops = [request.stop]
    if self.template_manager.chat_template_name is not None:
        conv = generate_chat_conv(request, self.template_manager.chat_template_name)
        image_data, video_data = conv.image_data, conv.video_data
        audio_data, modalities = conv.audio_data, conv.modalities or []
        # Such a template has stop strings of its own.
        stops += [] if request.ignore_eos else [conv.stop_str]
    else:
        for message in request.messages:
            process_content_for_template_format(
                message.model_dump(),
                self.template_manager.jinja_template_content_format,
                image_data,
                video_data,
                audio_data,
                modalities,
            )
    return MessageProcessingResult(
        prompt="",
        prompt_ids=request.input_ids,
        image_data=image_data or None,
        video_data=video_data or None,
        audio_data=audio_data or None,
        modalities=modalities,
        stop=[
            one
            for stop in stops
            for one in ([stop] if isinstance(stop, str) else stop or [])
        ],
    )
