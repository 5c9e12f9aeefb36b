from typing import Any

from sglang.srt.managers.tokenizer_manager import TokenizerManager

class OpenAIServingBase:
    tokenizer_manager: TokenizerManager
    def create_error_response(self, message: str) -> Any: ...
    def _resolve_lora_path(
        self, request_model: str, explicit_lora_path: Any
    ) -> str | None: ...
    def create_streaming_error_response(self, message: str) -> str: ...
