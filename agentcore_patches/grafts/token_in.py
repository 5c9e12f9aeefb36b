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


def _validate_input_ids(self, request: ChatCompletionRequest) -> Optional[str]:
    """What forbids a prompt given as `input_ids`, None if nothing does."""
    manager = self.tokenizer_manager
    if manager.server_args.skip_tokenizer_init:
        return (
            "input_ids in chat completions need a tokenizer for the answer, but "
            "the server runs with --skip-tokenizer-init. Send them to /generate."
        )
    has_media = any(
        getattr(part, "type", "text") != "text"
        for message in request.messages
        if isinstance(message.content, list)
        for part in message.content
    )
    ids = request.input_ids
    error: Optional[str] = manager.check_token_ids(ids, has_media=has_media)
    return error


def _take_images_and_stops(
    self,
    request: ChatCompletionRequest,
    result: MessageProcessingResult,
) -> None:
    """Add to a prompt of IDs all but the text of messages and template."""
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
    result.image_data = image_data or None
    result.video_data = video_data or None
    result.audio_data = audio_data or None
    result.modalities = modalities
    result.stop = [
        one
        for stop in stops
        for one in ([stop] if isinstance(stop, str) else stop or [])
    ]
