from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

def _is_byte_level_tokenizer(tokenizer: Any) -> bool: ...  # since 0.5.21
def token_id_to_bytes(
    tokenizer: Any, token_id: int
) -> list[int] | None: ...  # since 0.5.21
def to_openai_style_logprobs(
    *,
    input_token_logprobs: Sequence[Any] | None,
    input_top_logprobs: Sequence[Any] | None,
    output_token_logprobs: Sequence[Any],
    output_top_logprobs: Sequence[Any] | None,
    **options: Any,
) -> BaseModel: ...
