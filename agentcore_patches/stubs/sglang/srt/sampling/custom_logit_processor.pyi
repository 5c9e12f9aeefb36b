from typing import Any

class CustomLogitProcessor:
    @classmethod
    def from_str(cls, json_str: str) -> Any: ...
