import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from sglang.srt.configs.model_config import ModelConfig
from sglang.srt.managers.io_struct import (
    ContinueGenerationReqInput,
    EmbeddingReqInput,
    FlushCacheReqOutput,
    GenerateReqInput,
    LoRAUpdateOutput,
    PauseGenerationReqInput,
    UnloadLoRAAdapterReqInput,
)
from sglang.srt.server_args import ServerArgs
from sglang.srt.utils.aio_rwlock import RWLock

class LoRARef:
    @property
    def lora_id(self) -> str: ...
    @property
    def lora_name(self) -> str: ...
    @property
    def lora_path(self) -> str: ...

class LoRARegistry:
    _counters: dict[str, Any]
    def get_all_adapters(self) -> dict[str, LoRARef]: ...
    async def release(self, lora_id: str) -> None: ...

class ReqState:
    __dict__: dict[str, Any]
    abort_sent: bool  # since 0.5.20
    customized_info_accumulated: dict[str, list[Any]]
    customized_info_reported_keys: set[str]  # since 0.5.23
    dispatched: bool  # since 0.5.20
    finished: bool
    obj: GenerateReqInput
    out_list: list[dict[str, Any]]
    output_ids: list[int]

class TokenizerManager:
    __dict__: dict[str, Any]
    context_len: int
    incremental_streaming_output: bool  # since 0.5.20
    is_generation: bool
    is_pause: bool
    is_pause_cond: asyncio.Condition
    lora_ref_cache: dict[str, LoRARef]
    lora_registry: LoRARegistry
    max_req_input_len: int | None
    mm_processor: Any
    model_config: ModelConfig
    model_path: str
    model_update_lock: RWLock
    num_reserved_tokens: int
    rid_to_state: dict[str, ReqState]
    sampling_params_class: type
    send_to_scheduler: Any
    served_model_name: str
    server_args: ServerArgs
    tokenizer: Any
    def _dispatch_to_scheduler(self, obj: Any, /) -> None: ...  # since 0.5.15
    def abort_request(self, rid: str) -> None: ...
    def auto_create_handle_loop(self) -> None: ...
    def generate_request(
        self, obj: GenerateReqInput | EmbeddingReqInput, request: Any
    ) -> AsyncGenerator[Any]: ...
    def _update_weight_version_if_provided(
        self, weight_version: str | None
    ) -> None: ...
    async def _resolve_lora_path(self, obj, *args, **kwargs): ...
    async def _unload_lora_adapter_locked(self, obj, *args, **kwargs): ...
    async def _tokenize_texts(self, texts: str) -> tuple[list[int], Any]: ...
    async def continue_generation(self, obj: ContinueGenerationReqInput) -> None: ...
    async def flush_cache(self) -> FlushCacheReqOutput: ...
    async def load_lora_adapter(self, obj, *args, **kwargs): ...
    async def load_lora_adapter_from_tensors(self, obj, *args, **kwargs): ...
    async def pause_generation(self, obj: PauseGenerationReqInput) -> None: ...
    async def unload_lora_adapter(
        self, obj: UnloadLoRAAdapterReqInput
    ) -> LoRAUpdateOutput: ...
    async def update_weights_from_disk(self, *args, **kwargs): ...
    async def update_weights_from_distributed(self, *args, **kwargs): ...
    async def update_weights_from_ipc(self, *args, **kwargs): ...
    async def update_weights_from_tensor(self, *args, **kwargs): ...
