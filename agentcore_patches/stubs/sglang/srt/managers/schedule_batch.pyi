from typing import Any

class ReqLogprob:  # since 0.5.13
    input_token_logprobs_idx: list[int] | None

class Req:
    __weakref__: Any
    customized_info: dict[str, list[Any]] | None
    extra_key: str | None
    finished_len: int | None
    inflight_middle_chunks: int  # since 0.5.14
    input_token_logprobs_idx: list[int] | None  # until 0.5.12
    is_retracted: bool
    logprob: ReqLogprob  # since 0.5.13
    output_ids: list[int]
    return_routed_experts: bool  # until 0.5.12
    rid: str
    send_token_offset: int
    weight_version: str | None
    weight_versions: list[list[Any]]
    weights_namespace: str
    def finished(self) -> bool: ...

class ScheduleBatch:
    reqs: list[Req]
    return_logprob: bool
    weight_version: str | None
    def is_empty(self) -> bool: ...
    def merge_batch(self, other: ScheduleBatch) -> None: ...

class Session:  # since 0.5.10
    streaming: bool
