from typing import Any

def process_content_for_template_format(
    msg_dict: dict[str, Any],
    content_format: str,
    image_data: list[Any],
    video_data: list[Any],
    audio_data: list[Any],
    modalities: list[str],
) -> dict[str, Any]: ...
