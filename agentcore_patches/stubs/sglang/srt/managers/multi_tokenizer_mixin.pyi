from typing import Any

class TokenizerWorker:
    def _attach_multi_http_worker_info(
        self, req: Any, /
    ) -> None: ...  # since 0.5.11 # until 0.5.12

def _extract_field_by_index(
    output: Any, field_name: str, index: int, /, *, check_length: bool
) -> Any: ...
