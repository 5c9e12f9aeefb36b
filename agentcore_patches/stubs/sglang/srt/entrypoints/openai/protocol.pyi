from typing import Any, Literal

from pydantic import BaseModel

class Function(BaseModel):
    name: str

class FunctionResponse(BaseModel):
    arguments: Any
    name: str | None

class Tool(BaseModel):
    function: Function

class ToolCall(BaseModel):
    id: str | None
    function: FunctionResponse

class ToolChoiceFuncName(BaseModel):
    name: str

class ToolChoice(BaseModel):
    function: ToolChoiceFuncName

class ChatCompletionMessageContentTextPart(BaseModel):
    def __init__(self, *, type: str, text: str) -> None: ...

class ChatCompletionMessageGenericParam(BaseModel):
    content: Any
    role: Literal["system", "assistant", "tool", "function", "developer"]
    tool_calls: list[ToolCall]

class ChatCompletionMessageUserParam(BaseModel):
    content: Any
    role: Literal["user"]

class ChatMessage(BaseModel):
    content: str | None
    tool_calls: list[ToolCall]

class ChatCompletionRequest(BaseModel):
    _exchange: Any
    cache_salt: Any
    chat_template: Any  # by vllm_api
    chat_template_kwargs: dict[str, Any] | None
    continue_final_message: bool
    extra_key: Any
    ignore_eos: bool
    input_ids: list[int] | None
    logprobs: bool
    lora_path: Any
    messages: list[ChatCompletionMessageGenericParam | ChatCompletionMessageUserParam]
    model: str
    n: int
    priority: int | None
    prompt_logprobs: Any  # by vllm_api
    reasoning_effort: str | None
    required_prefix_token_ids: list[int] | None
    return_meta_info: bool
    return_prompt_token_ids: bool
    return_routed_experts: bool
    return_token_ids: bool | None
    return_token_logprobs: bool | None
    return_tokens_as_token_ids: bool | None
    return_weight_versions: bool | None
    rid: Any
    routed_experts_format: str | None
    routed_experts_start_len: int
    stop: str | list[str] | None
    stop_regex: str | list[str] | None
    stop_token_ids: list[int] | None
    stream: bool
    structured_outputs: Any  # by vllm_api
    tool_choice: Any
    tools: list[Tool] | None
    vllm_fields: dict[str, Any] | None  # by vllm_api
    def __init__(self, *, messages: list[Any]) -> None: ...

class CompletionRequest(BaseModel):
    echo: bool
    ignore_eos: bool
    logprobs: int | None
    n: int
    prompt: Any
    prompt_logprobs: Any  # by vllm_api
    return_prompt_token_ids: bool | None
    return_routed_experts: bool
    return_token_ids: bool | None
    return_token_logprobs: bool | None
    return_tokens_as_token_ids: bool | None
    return_weight_versions: bool | None
    routed_experts_format: str | None
    routed_experts_start_len: int
    stream: bool
    structured_outputs: Any  # by vllm_api
    vllm_fields: dict[str, Any] | None  # by vllm_api

class ResponsesRequest(BaseModel):
    background: bool | None
    cache_salt: Any
    extra_key: Any
    previous_response_id: str | None
    required_prefix_token_ids: list[int] | None
    return_token_ids: bool | None
    stream: bool | None

class TokenizeRequest(BaseModel):
    chat_request: ChatCompletionRequest | None  # until 0.5.11
    messages: list[Any] | None  # since 0.5.12
    return_token_strs: bool | None  # by vllm_api

class TokenizeResponse(BaseModel):
    def __init__(self, *, tokens: Any, count: Any, max_model_len: int) -> None: ...

class ChatCompletionResponseChoice(BaseModel):
    finish_reason: Any
    logprobs: Any
    matched_stop: int | str | None
    message: ChatMessage
    meta_info: dict[str, Any] | None
    prompt_token_ids: list[int] | None
    token_ids: list[int] | None
    token_logprobs: list[float] | None

class ChatCompletionResponse(BaseModel):
    choices: list[ChatCompletionResponseChoice]
    metadata: dict[str, Any] | None
    object: str
    prompt_token_ids: list[int] | None

class CompletionResponseChoice(BaseModel):
    logprobs: Any
    prompt_logprobs: Any  # by vllm_api
    prompt_token_ids: list[int] | None
    token_ids: list[int] | None
    token_logprobs: list[float] | None

class CompletionResponse(BaseModel):
    choices: list[CompletionResponseChoice]
    object: str

class ModelCard(BaseModel):
    id: str

class MessageProcessingResult:
    audio_data: Any
    image_data: Any
    modalities: list[str]
    prompt: str
    prompt_ids: Any
    stop: list[str]
    video_data: Any
    def __init__(
        self,
        *,
        prompt: str,
        prompt_ids: Any,
        image_data: Any,
        audio_data: Any,
        video_data: Any,
        modalities: list[str],
        stop: list[str],
        tool_call_constraint: Any,
    ) -> None: ...
