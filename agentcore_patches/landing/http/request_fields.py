"""Read the fields of requests, and reject bad token IDs in them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from sglang.srt.entrypoints.openai.protocol import (
        ChatCompletionRequest,
        CompletionRequest,
    )
    from sglang.srt.managers.io_struct import EmbeddingReqInput, GenerateReqInput
    from sglang.srt.managers.tokenizer_manager import TokenizerManager

    from .answers import Json

    ApiRequest: TypeAlias = ChatCompletionRequest | CompletionRequest
    # A request for the tokenizer manager, which may be a batch.
    EngineRequest: TypeAlias = GenerateReqInput | EmbeddingReqInput

INT32 = 2**31 - 1
INT64 = 2**63 - 1

_NEED_TOKENIZER = ("min_new_tokens", "stop", "stop_regex")


def read(request: Any, name: str, default: Any = None) -> Any:
    """Return a field of a request; the default if no such field is declared.

    Embedding requests have fewer fields than generation requests, and so have requests
    of older releases. Each installed patch adds the fields that it serves.
    """
    return getattr(request, name, default)


def each(obj: EngineRequest, name: str) -> list[Any]:
    """Return the values of a field that are not None, one or one per prompt."""
    value = read(obj, name)
    values = value if isinstance(value, list) else [value]
    return [one for one in values if one is not None]


def all_sampling_params(obj: EngineRequest) -> Iterable[dict[str, Any]]:
    """Return the sampling parameters of a request or a batch, each object once."""
    return {id(one): one for one in each(obj, "sampling_params")}.values()


def find_error(manager: TokenizerManager, obj: EngineRequest) -> str | None:
    """Return why the engine cannot accept the request, None if it can.

    Stop token IDs that no model can sample are removed.
    """
    for params in all_sampling_params(obj):
        for name in _NEED_TOKENIZER if manager.server_args.skip_tokenizer_init else ():
            if params.get(name):
                return f"{name} needs a tokenizer: --skip-tokenizer-init leaves it out."
        error = _find_stop_error(manager, params)
        if error is not None:
            return error
        # SGLang checks the range of the keys.
        biases = params.get("logit_bias") or {}
        if not (isinstance(biases, dict) and all(str(i).isdecimal() for i in biases)):
            return "logit_bias must be an object with token IDs as keys."
    return _find_scored_error(manager, obj)


def as_integer(value: Json) -> Any:
    """Convert a float such as 5.0 to an integer: some clients send it for 5."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def is_integer(value: Json) -> bool:
    """True for an integer of Python or numpy."""
    # numpy integers are not `int`, but have `__index__`.
    return hasattr(value, "__index__") and not isinstance(value, bool)


def find_range_error(name: str, value: Json, least: int, most: int) -> str | None:
    """Return the error in an integer field, None if its value is in the range."""
    if not is_integer(value):
        return f"{name} must be an integer."
    return None if least <= value <= most else f"{name} must be from {least} to {most}."


def _find_stop_error(manager: TokenizerManager, params: dict[str, Any]) -> str | None:
    """Return the error in `stop_token_ids`, or remove what no model can sample.

    If any request of a running batch has `min_new_tokens`, SGLang indexes the logits
    with the stop tokens of all of them.
    """
    ids = params.get("stop_token_ids")
    if ids is None:
        return None
    if not isinstance(ids, (list, tuple, set)):
        return "stop_token_ids must be a list of integers."
    known = [token_id for token_id in ids if token_id is not None]
    if not all(map(is_integer, known)):
        return "stop_token_ids must be a list of integers."
    vocab_size = manager.model_config.vocab_size
    params["stop_token_ids"] = [i for i in known if 0 <= i < vocab_size]
    return None


def _find_scored_error(manager: TokenizerManager, obj: EngineRequest) -> str | None:
    """Return the error in `token_ids_logprob`: one list, or one for each prompt."""
    scored = read(obj, "token_ids_logprob")
    if scored is None:
        return None
    vocab_size = manager.model_config.vocab_size
    lists = [scored]
    # SGLang tells the two forms apart by the type of the first value.
    if _is_batch(obj) and any(isinstance(ids, list) for ids in scored[:1]):
        lists = [ids or [] for ids in scored]
    for ids in lists:
        if not (
            isinstance(ids, (list, tuple))
            and all(is_integer(i) and 0 <= i < vocab_size for i in ids)
        ):
            return (
                f"token_ids_logprob must be a list of token IDs from 0 to "
                f"{vocab_size - 1}, or in a batch one for each prompt."
            )
    return None


def _is_batch(obj: EngineRequest) -> bool:
    """True if a request has several prompts, or `n` above 1."""
    prompts = obj.text if obj.text is not None else obj.input_ids
    if isinstance(prompts, list) and not any(map(is_integer, prompts[:1])):
        return True
    return any(has_samples(params) for params in all_sampling_params(obj))


def has_samples(params: dict[str, Any]) -> bool:
    """True if sampling parameters have `n` above 1."""
    n_samples = as_integer(params.get("n"))
    return is_integer(n_samples) and n_samples > 1
