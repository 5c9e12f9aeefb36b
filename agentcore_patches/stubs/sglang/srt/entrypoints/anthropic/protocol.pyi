from typing import Any

from pydantic import BaseModel

class AnthropicMessagesRequest(BaseModel):  # since 0.5.9
    lora_path: str | None
    model: str
    required_prefix_token_ids: list[int] | None
    return_prompt_token_ids: bool | None
    return_token_ids: bool | None

class AnthropicMessagesResponse(BaseModel):  # since 0.5.9
    metadata: dict[str, Any] | None
    prompt_token_ids: list[int] | None
    stop_reason: str | None
    stop_sequence: str | None
    token_ids: list[int] | None
    token_logprobs: list[float] | None
