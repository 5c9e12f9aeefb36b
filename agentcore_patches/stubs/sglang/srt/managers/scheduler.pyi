from typing import Any

from sglang.srt.configs.model_config import ModelConfig
from sglang.srt.managers.schedule_batch import Req, ScheduleBatch, Session
from sglang.srt.managers.tp_worker import TpModelWorker
from sglang.srt.server_args import ServerArgs

class SessionController:  # since 0.5.10
    sessions: dict[str, Session]

class Scheduler:
    _request_dispatcher: Any  # until 0.5.18
    chunked_req: Req | None
    device: str
    draft_worker: Any  # Of several classes without a common base, as is `tree_cache`.
    enable_hicache_storage: bool
    last_batch: ScheduleBatch
    model_config: ModelConfig  # until 0.5.12
    offload_tags: set[str]  # until 0.5.12
    running_batch: ScheduleBatch
    server_args: ServerArgs
    session_controller: SessionController  # since 0.5.10
    tp_cpu_group: Any
    tp_worker: TpModelWorker
    tree_cache: Any
    waiting_queue: list[Req]
    def _calculate_num_input_logprobs(
        self, req: Req, extend_input_len: int, extend_logprob_start_len: int, /
    ) -> int: ...  # until 0.5.12
    def _is_no_request(self) -> bool: ...  # until 0.5.9
    def is_fully_idle(self) -> bool: ...  # since 0.5.10
    def attach_hicache_storage_wrapped(self, recv_req): ...  # since 0.5.9
    def load_lora_adapter(self, recv_req): ...
    def load_lora_adapter_from_tensors(self, recv_req): ...
    # From 0.5.13 on, these are methods of `SchedulerWeightUpdaterManager`.
    def release_memory_occupation(self, recv_req): ...  # until 0.5.12
    def resume_memory_occupation(self, recv_req): ...  # until 0.5.12
    def update_weights_from_disk(self, recv_req): ...  # until 0.5.12
    def update_weights_from_distributed(self, recv_req): ...  # until 0.5.12
    def update_weights_from_ipc(self, recv_req): ...  # until 0.5.12
    def update_weights_from_tensor(self, recv_req): ...  # until 0.5.12
