from typing import Any

class ModelConfig:
    context_len: int
    hf_eos_token_id: set[int] | None
    hf_text_config: Any
    image_token_id: int | None
    model_path: str
    vocab_size: int
