from typing import Any

class _GenerationStreamAccumulator:  # since 0.5.13 # until 0.5.21
    customized_info: dict[str, list[Any]] | None
    rids: list[str]
