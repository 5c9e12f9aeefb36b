from typing import Any

from sglang.srt.entrypoints.openai.protocol import ChatCompletionRequest

class Conversation:
    audio_data: list[Any]
    image_data: list[Any]
    modalities: list[str] | None
    stop_str: str | list[str] | None
    video_data: list[Any]

chat_templates: dict[str, Conversation]

def generate_chat_conv(
    request: ChatCompletionRequest, template_name: str
) -> Conversation: ...
