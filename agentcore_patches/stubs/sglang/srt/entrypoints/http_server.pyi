from typing import Any

from sglang.srt.managers.tokenizer_manager import TokenizerManager

class _GlobalState:
    scheduler_info: dict[str, Any]
    tokenizer_manager: TokenizerManager

def _create_error_response(e: Any, /) -> Any: ...
