from collections.abc import Callable
from typing import Any

class TypeBasedDispatcher:
    def __init__(self, mapping: list[tuple[type, Callable[[Any], None]]]) -> None: ...
