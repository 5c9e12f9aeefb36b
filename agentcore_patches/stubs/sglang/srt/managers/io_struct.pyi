from typing import Any

class BaseReq:
    http_worker_ipc: str | None

class SessionParams:
    rid: str | None

class GenerateReqInput:
    __dict__: dict[str, Any]
    data_parallel_rank: int | None  # until 0.5.9
    image_data: Any
    input_embeds: Any
    input_ids: Any
    is_single: bool
    logprob_start_len: Any
    lora_id: Any
    lora_path: Any
    require_reasoning: bool
    return_logprob: Any
    return_prompt_token_ids: bool
    return_routed_experts: bool
    return_text_in_logprobs: bool
    rid: Any
    routed_dp_rank: int | None  # since 0.5.10
    routed_experts_start_len: int
    sampling_params: Any
    session_params: Any
    stream: bool
    text: Any
    top_logprobs_num: Any
    def __init__(
        self,
        *,
        input_ids: list[int],
        sampling_params: dict[str, Any],
        stream: bool,
        return_logprob: bool,
        logprob_start_len: int,
        top_logprobs_num: int,
        extra_key: str | None,
        priority: int | None,
        routing_key: str | None,
    ) -> None: ...
    def __getitem__(self, i, /): ...
    def contains_mm_input(self) -> bool: ...
    def normalize_batch_and_arguments(self) -> None: ...
    def regenerate_rid(self) -> Any: ...

class EmbeddingReqInput:
    __dict__: dict[str, Any]
    input_embeds: Any
    input_ids: Any
    is_single: bool
    return_prompt_token_ids: bool
    rid: Any
    sampling_params: Any
    text: Any
    def __getitem__(self, i, /): ...
    def contains_mm_input(self) -> bool: ...
    def normalize_batch_and_arguments(self) -> None: ...
    def regenerate_rid(self) -> Any: ...

class TokenizedGenerateReqInput(BaseReq):
    extra_key: str | None
    mm_inputs: Any
    rid: str

class TokenizedEmbeddingReqInput(BaseReq):
    mm_inputs: Any  # since 0.5.15
    rid: str

class BatchTokenizedGenerateReqInput:
    batch: list[TokenizedGenerateReqInput]

class BatchTokenizedEmbeddingReqInput:
    batch: list[TokenizedEmbeddingReqInput]

class BatchStrOutput(BaseReq):
    completion_tokens: list[int]
    finished_reasons: list[dict[str, Any] | None]
    input_token_logprobs_val: list[Any]
    output_token_logprobs_val: list[Any]
    output_top_logprobs_val: list[Any] | None
    rids: list[str]

class BatchTokenIDOutput(BaseReq):
    rids: list[str]

class AbortReq(BaseReq):
    abort_all: bool
    finished_reason: dict[str, Any] | None
    rid: str
    def __init__(self, *, rid: str = ..., abort_all: bool = ...) -> None: ...

class ContinueGenerationReqInput(BaseReq):
    def __init__(self) -> None: ...

class FlushCacheReqOutput(BaseReq):
    success: bool

class LoRAUpdateOutput(BaseReq):
    success: bool

class LoadLoRAAdapterReqInput(BaseReq):
    lora_name: str
    weight_version: str | None
    def __init__(
        self,
        *,
        lora_name: str,
        lora_path: str,
        pinned: bool,
        weight_version: str | None,
    ) -> None: ...

class LoadLoRAAdapterFromTensorsReqInput(BaseReq):
    weight_version: str | None

class UnloadLoRAAdapterReqInput(BaseReq):
    lora_name: str
    def __init__(self, *, lora_name: str) -> None: ...

class PauseGenerationReqInput(BaseReq):
    mode: str
    def __init__(self, *, mode: str) -> None: ...

class ReleaseMemoryOccupationReqInput(BaseReq):
    def __init__(self, *, tags: list[str] | None) -> None: ...

class ReleaseMemoryOccupationReqOutput(BaseReq):
    refusal: str | None  # by crash_fixes

class ResumeMemoryOccupationReqInput(BaseReq):
    tags: list[str] | None
    def __init__(self, *, tags: list[str] | None) -> None: ...

class ResumeMemoryOccupationReqOutput(BaseReq):
    refusal: str | None  # by crash_fixes

class UpdateWeightVersionReqInput(BaseReq):
    new_version: str

class UpdateWeightFromDiskReqInput(BaseReq):
    flush_cache: bool
    weight_version: str | None
    def __init__(self, *, model_path: str, weight_version: str | None) -> None: ...

class UpdateWeightsFromDistributedReqInput(BaseReq):
    flush_cache: bool
    weight_version: str | None

class UpdateWeightsFromTensorReqInput(BaseReq):
    flush_cache: bool
    weight_version: str | None

class UpdateWeightsFromIPCReqInput(BaseReq):
    flush_cache: bool
    weight_version: str | None
