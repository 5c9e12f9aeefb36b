"""Stand-ins for parts of a server that landing code reads, and lines of its streams."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

VOCAB_SIZE = 100
DONE = "data: [DONE]\n\n"


class Model(SimpleNamespace):
    """A request or a message of SGLang's protocol."""

    def model_dump(self, include: set[str] | None = None) -> dict[str, Any]:
        wanted = vars(self) if include is None else include
        return {name: value for name, value in vars(self).items() if name in wanted}

    def model_copy(self, update: dict[str, Any]) -> Model:
        return Model(**{**vars(self), **update})


def tokenizer_manager(**values: Any) -> Any:
    """Return a tokenizer manager; `values` are attributes of it or of its arguments."""
    off = (
        *("enable_deterministic_inference", "enable_priority_scheduling"),
        *("allow_auto_truncate", "skip_tokenizer_init", "enable_lora"),
        *("enable_custom_logit_processor", "disable_overlap_schedule", "stream_output"),
    )
    args = SimpleNamespace(
        **dict.fromkeys(off, False),
        tokenizer_worker_num=1,
        dp_size=1,
        served_model_name="served",
        dllm_algorithm=None,
        speculative_algorithm=None,
    )
    manager = SimpleNamespace(
        server_args=args,
        model_config=SimpleNamespace(
            vocab_size=VOCAB_SIZE, image_token_id=None, model_path="path"
        ),
        tokenizer=SimpleNamespace(eos_token_id=2),
        context_len=100,
        num_reserved_tokens=0,
        max_req_input_len=None,
        is_generation=True,
        mm_processor=None,
        served_model_name="served",
        model_path="path",
        rid_to_state={},
    )
    for name, value in values.items():
        setattr(manager if hasattr(manager, name) else args, name, value)
    return manager


def chat_endpoint(**server_args: Any) -> Any:
    return SimpleNamespace(
        tokenizer_manager=tokenizer_manager(**server_args),
        create_streaming_error_response=lambda message: json.dumps({"error": message}),
    )


def choice_of(
    index: int, content: str = "", finish_reason: str | None = None
) -> dict[str, Any]:
    return {
        "index": index,
        "delta": {"content": content},
        "logprobs": None,
        "finish_reason": finish_reason,
        "matched_stop": None,
    }


def line_of(*choices: dict[str, Any]) -> str:
    """Return a line of a chat stream, as SGLang writes it."""
    chunk = {"id": "x", "choices": choices, "model": "m", "usage": None}
    return f"data: {json.dumps(chunk, separators=(',', ':'))}\n\n"
