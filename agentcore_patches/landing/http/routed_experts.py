"""Routed experts of each token of a mixture-of-experts model, for each choice.

The engine returns them once, when a request finishes, as base64 of int32. There is one
row for each token except the last, from the requested start on.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from .. import release
from . import request_fields

if TYPE_CHECKING:
    import numpy as np
    from sglang.srt.entrypoints.openai.serving_base import OpenAIServingBase
    from sglang.srt.managers.io_struct import GenerateReqInput
    from sglang.srt.managers.tokenizer_manager import ReqState, TokenizerManager

    from .request_fields import ApiRequest, EngineRequest

# Names of the number of experts in model configurations.
_NUMBERS_OF_EXPERTS = (
    "num_experts",
    "n_routed_experts",
    "num_local_experts",
    "moe_num_experts",
)


class StartLen:
    """`routed_experts_start_len` of a request: an integer of at least 0; null is 0."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_before_validator_function(
            lambda value: 0 if value is None else value,
            core_schema.int_schema(strict=True, ge=0),
        )


def ask(
    serving: OpenAIServingBase, request: ApiRequest, adapted_request: GenerateReqInput
) -> None:
    """Copy the fields about routed experts to the engine request."""
    # Up to 0.5.11, SGLang does not copy them itself.
    adapted_request.return_routed_experts = bool(request.return_routed_experts)
    adapted_request.routed_experts_start_len = request.routed_experts_start_len
    error = check(serving.tokenizer_manager, adapted_request)
    if error is not None:
        raise ValueError(error)


def check(manager: TokenizerManager, obj: EngineRequest) -> str | None:
    """Return the error in `routed_experts_start_len`, None if it is valid.

    A stream has sent its status before the engine could report the error. The prompt's
    length is not known yet with images and sessions: then the engine decides.
    """
    start = request_fields.read(obj, "routed_experts_start_len", 0)
    if start == 0 or not request_fields.read(obj, "return_routed_experts"):
        return None
    if start < 0:
        return f"routed_experts_start_len is {start}, and must be 0 or more."
    session = request_fields.read(obj, "session_params")
    if obj.contains_mm_input() or session or obj.input_embeds is not None:
        return None
    prompts = obj.text if obj.input_ids is None else obj.input_ids
    if not prompts:
        return None
    if isinstance(prompts, str) or isinstance(prompts[0], int):
        prompts = [prompts]
    for prompt in prompts:
        if isinstance(prompt, str):
            # SGLang rejects text if it has no tokenizer.
            if manager.tokenizer is None:
                return None
            prompt = manager.tokenizer.encode(prompt)
        if start > len(prompt):
            return (
                f"routed_experts_start_len is {start}, and the prompt has only "
                f"{len(prompt)} tokens."
            )
    return None


def add_to_output(
    manager: TokenizerManager, state: ReqState, meta_info: dict[str, Any]
) -> None:
    """Cut a request's experts to the requested start, and report the start."""
    obj = state.obj
    encoded = meta_info.get("routed_experts")
    if encoded is None or not request_fields.read(obj, "return_routed_experts"):
        # The engine returns them if another request of the batch wants them.
        meta_info.pop("routed_experts", None)
        return
    start = obj.routed_experts_start_len
    if start and not release.ROUTED_EXPERTS_HAVE_START:
        meta_info["routed_experts"] = _encode(_rows(manager, encoded)[start:].tobytes())
    meta_info["routed_experts_start_len"] = start


def is_wanted(request: ApiRequest) -> bool:
    """True if each choice of the response has its routed experts.

    `return_token_ids: false` keeps SGLang's own response, unless the request names a
    format: stock SGLang has no formats.
    """
    return bool(request.return_routed_experts) and (
        request.return_token_ids is not False
        or request.routed_experts_format is not None
    )


def choice_fields(
    serving: OpenAIServingBase, request: ApiRequest, meta_info: dict[str, Any]
) -> dict[str, Any]:
    """Return the fields of a finished choice for its experts; empty without experts."""
    encoded = meta_info.get("routed_experts")
    if encoded is None:
        return {}
    start = request.routed_experts_start_len
    if request.routed_experts_format == "npy":
        encoded = in_shape(serving.tokenizer_manager, encoded, "npy", start)
    return {"routed_experts": encoded, "routed_experts_start_len": start}


def _in_smallest_type(
    manager: TokenizerManager, rows: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    """Convert experts to the smallest unsigned type that holds all of the model's.

    Raises:
        ValueError: an expert has a negative number.
    """
    import numpy as np

    config = manager.model_config.hf_text_config
    # Models name the number of experts differently.
    numbers = (getattr(config, name, None) for name in _NUMBERS_OF_EXPERTS)
    known = next((number for number in numbers if isinstance(number, int)), 1)
    # Redundant experts, for load balancing, have numbers beyond the model's own.
    highest = max(known - 1, int(rows.view(np.uint32).max(initial=0)))
    if highest > np.iinfo(np.int32).max:
        raise ValueError(
            "The engine returned an expert with a negative number, which "
            'routed_experts_format "npy" cannot represent. Omit the format.'
        )
    return rows.astype(np.min_scalar_type(highest))


def in_shape(manager: TokenizerManager, encoded: str, shape: str, start: int) -> Any:
    """Convert experts to one of the shapes that clients of vLLM read.

    Args:
        shape: "npy", "object" or "nested".
        start: token of the first row.
    """
    import numpy as np

    rows = _rows(manager, encoded)
    if shape == "nested":
        return rows.tolist()
    smallest = _in_smallest_type(manager, rows)
    if shape == "npy":
        file = io.BytesIO()
        np.save(file, smallest)
        return _encode(file.getvalue())
    # A client finds the field by its first bytes: `data` stays the first one.
    return {
        "data": _encode(smallest.tobytes()),
        "shape": list(smallest.shape),
        "dtype": str(smallest.dtype),
        "start": start,
    }


def _rows(manager: TokenizerManager, encoded: str) -> np.ndarray[Any, Any]:
    """Decode the engine's experts to an array of shape (tokens, layers, topk)."""
    import numpy as np
    import pybase64

    config = manager.model_config.hf_text_config
    # `validate=True` makes decoding ten times faster.
    flat = np.frombuffer(pybase64.b64decode(encoded, validate=True), dtype=np.int32)
    return flat.reshape(-1, config.num_hidden_layers, config.num_experts_per_tok)


def _encode(data: bytes) -> str:
    import pybase64

    text: str = pybase64.b64encode(data).decode()
    return text
