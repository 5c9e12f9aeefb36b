from typing import Any

from sglang.srt.entrypoints.openai.serving_chat import OpenAIServingChat

class AnthropicServing:  # since 0.5.9
    openai_serving_chat: OpenAIServingChat
    def _error_response(
        self, *, status_code: int, error_type: str, message: str
    ) -> Any: ...
    def _generate_anthropic_stream(
        self, *args, anthropic_request, processed_request, **kwargs
    ): ...
    async def handle_count_tokens(self, *args, raw_request, **kwargs): ...
