from collections.abc import Awaitable
from typing import Any

class BaseMultiModalProcessorOutput:
    input_ids: list[int] | None  # since 0.5.13
    input_text: str
    token_ids: list[int] | None
    def organize_results(self) -> list[tuple[Any, Any]]: ...

class MultimodalSpecialTokens:
    audio_token_id: int | None
    image_token_id: int | None
    video_token_id: int | None

class BaseMultimodalProcessor:
    def load_mm_data(
        self, *, prompt, multimodal_tokens, image_data, video_data, audio_data, **kwargs
    ) -> Any | Awaitable[Any]: ...
