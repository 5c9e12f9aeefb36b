from typing import Any

from pydantic import BaseModel
from sglang.srt.entrypoints.openai.protocol import ChatCompletionRequest
from sglang.srt.entrypoints.openai.serving_base import OpenAIServingBase
from sglang.srt.managers.io_struct import GenerateReqInput

class TemplateManager:
    chat_template_name: str | None
    jinja_template_content_format: str

class OpenAIServingChat(OpenAIServingBase):
    reasoning_parser: str | None
    template_manager: TemplateManager
    def _build_chat_response(self, request, ret, *args, **kwargs): ...
    def _convert_to_internal_request(
        self, request: ChatCompletionRequest, raw_request: Any
    ) -> tuple[GenerateReqInput, ChatCompletionRequest]: ...
    def _generate_chat_stream(self, adapted_request, request, *args, **kwargs): ...
    def _process_messages(self, request, *args, **kwargs): ...
    def _process_response_logprobs(self, ret_item: dict[str, Any]) -> BaseModel: ...
    def _validate_request(self, request: ChatCompletionRequest) -> str | None: ...
