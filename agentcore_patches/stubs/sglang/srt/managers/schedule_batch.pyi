from typing import Any

class Req:
    __weakref__: Any
    extra_key: str | None
    is_retracted: bool
    output_ids: list[int]
    rid: str
    send_token_offset: int
    weight_version: str | None
    weight_versions: list[list[Any]]
    weights_namespace: str
    def finished(self) -> bool: ...

class ScheduleBatch:
    reqs: list[Req]
    weight_version: str | None
    def is_empty(self) -> bool: ...
    def merge_batch(self, other: ScheduleBatch) -> None: ...

class Session:  # since 0.5.10
    streaming: bool
