"""Validate request fields: some values crash the engine or make it hang."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from inspect import Parameter, signature
from math import isfinite
from typing import TYPE_CHECKING, Any

from . import release

if TYPE_CHECKING:
    from sglang.srt.managers.io_struct import EmbeddingReqInput, GenerateReqInput
    from sglang.srt.managers.tokenizer_manager import TokenizerManager

    from .answers import Json

MOST_SAMPLES = 16_384
"""The largest `n`: each sample is a request to the engine."""

INT32 = 2**31 - 1
INT64 = 2**63 - 1

_LARGEST_BIAS = 1e30
"""It still fits into float32 after division by the lowest temperature."""

_LOWEST_REPETITION_PENALTY = 1e-6
"""Logits still fit into float32 after division by it."""

_INTEGERS: Mapping[str, tuple[int, int]] = {
    "max_new_tokens": (0, INT64),
    "min_new_tokens": (0, INT32),
    "n": (1, MOST_SAMPLES),
    "top_k": (-1, INT32),
    "stream_interval": (1, INT32),
    "beam_width": (1, INT32),
    "sampling_seed": (-INT64, INT64),
}
_NUMBERS = (
    "temperature",
    "top_p",
    "min_p",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
)
_FLAGS = (
    "ignore_eos",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "no_stop_trim",
)
_STRINGS = ("json_schema", "regex", "ebnf", "structural_tag")
_SEVERAL_STRINGS = ("stop", "stop_regex")

_INTERNAL = {
    "stop_strs",
    "stop_regex_strs",
    "stop_str_max_len",
    "stop_regex_max_len",
    "is_normalized",
}
"""Fields of SGLang's sampling parameters, from 0.5.15 on, that it sets itself."""

_NEED_TOKENIZER = ("min_new_tokens", *_SEVERAL_STRINGS)

_ONE_A_PROMPT = (
    "return_logprob",
    "logprob_start_len",
    "top_logprobs_num",
    "return_hidden_states",
    "return_sampling_mask",
    "lora_path",
    "lora_id",
    "custom_logit_processor",
    "extra_key",
    "bootstrap_host",
    "bootstrap_port",
    "bootstrap_room",
    "bootstrap_pair_key",
    "decode_tp_size",
    "positional_embed_overrides",
)
"""Fields that may be a list with one value per prompt, in a batch only."""

_SESSION: Mapping[str, type] = {
    "id": str,
    "rid": str,
    "offset": int,
    "replace": bool,
    "drop_previous_output": bool,
}


def read(request: Any, name: str, default: Any = None) -> Any:
    """Return a field of a request; the default if no such field is declared.

    Embedding requests have fewer fields than generation requests, and so have requests
    of older releases. Each installed patch adds the fields that it serves.
    """
    return getattr(request, name, default)


def find_error(
    manager: TokenizerManager, obj: GenerateReqInput | EmbeddingReqInput
) -> str | None:
    """Return why the engine cannot accept the request, None if it can.

    Args:
        manager: has the model's configuration.
        obj: a request or a batch. Numbers and flags with an equal value of another type
            are replaced by SGLang's type.
    """
    params = obj.sampling_params
    distinct = _distinct(params if isinstance(params, list) and params else [params])
    if not all(isinstance(one, dict) for one in distinct):
        return "sampling_params must be an object, or a list of one for each prompt."
    for one in distinct:
        error = _find_sampling_error(manager, one)
        if error is not None:
            return error
    for name in ("data_parallel_rank", "routed_dp_rank"):
        rank = read(obj, name)
        if rank is None:
            continue
        ranks = manager.server_args.dp_size
        if ranks > 1 and not 0 <= rank < ranks:
            return f"{name} must be from 0 to {ranks - 1}."
    return _find_field_error(manager, obj)


def _distinct(values: Iterable[Any]) -> Iterable[Any]:
    """Return each object once: the requests of a batch may share one."""
    return {id(value): value for value in values if value is not None}.values()


@cache
def _parameters(sampling_params: type) -> frozenset[str] | None:
    """Return the names that requests may give a class of sampling parameters.

    None if it takes any name.
    """
    taken = signature(sampling_params).parameters
    if any(one.kind is Parameter.VAR_KEYWORD for one in taken.values()):
        return None
    return frozenset(taken) - _INTERNAL


def _find_sampling_error(manager: TokenizerManager, params: Json) -> str | None:
    known = _parameters(manager.sampling_params_class)
    for name in params:
        if known is not None and name not in known:
            return f"sampling_params has no field named {name} in this SGLang."
    given = {name: value for name, value in params.items() if value is not None}
    for name in _INTEGERS.keys() & given.keys():
        number = as_integer(given[name])
        error = find_range_error(name, number, *_INTEGERS[name])
        if error is not None:
            return error
        params[name] = given[name] = number
    for name in _FLAGS:
        if (flag := given.get(name, False)) not in (0, 1):
            return f"{name} must be true or false."
        if name in given:
            params[name] = bool(flag)
        else:
            # SGLang would pass null on to the detokenizer, which crashes.
            params.pop(name, None)
    for name in _NUMBERS:
        if not _is_finite(given.get(name, 1)):
            return f"{name} must be a finite number."
    if given.get("repetition_penalty", 1) < _LOWEST_REPETITION_PENALTY:
        return f"repetition_penalty must be {_LOWEST_REPETITION_PENALTY} or more."
    for name in _STRINGS:
        if not isinstance(given.get(name, ""), str):
            return f"{name} must be a string."
    if given.get("structural_tag") == "":
        # Up to 0.5.16, SGLang would take it for a grammar and not find its kind.
        del params["structural_tag"]
    for name in _SEVERAL_STRINGS:
        if not _are_strings(given.get(name, ())):
            return f"{name} must be a string or a list of strings."
    return (
        _find_tokenizer_error(manager, given)
        or _find_pattern_error(given.get("stop_regex", ()))
        or _find_stop_error(manager, params)
        or _find_bias_error(manager, given.get("logit_bias", {}))
    )


def as_integer(value: Json) -> Any:
    """Convert a float such as 5.0 to an integer: some clients send it for 5."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _is_integer(value: Json) -> bool:
    # numpy integers are not `int`, but have `__index__`.
    return hasattr(value, "__index__") and not isinstance(value, bool)


def _is_finite(value: Json) -> bool:
    if isinstance(value, (str, bytes, bool)) or not hasattr(value, "__float__"):
        return False
    try:
        return isfinite(value)
    except OverflowError:
        return False


def _are_strings(value: Json) -> bool:
    texts = [value] if isinstance(value, str) else value
    return isinstance(texts, (list, tuple, set)) and all(
        isinstance(text, str) for text in texts
    )


def find_range_error(name: str, value: Json, least: int, most: int) -> str | None:
    """Return the error in an integer field, None if its value is in the range."""
    if not _is_integer(value):
        return f"{name} must be an integer."
    return None if least <= value <= most else f"{name} must be from {least} to {most}."


def _find_pattern_error(patterns: Json) -> str | None:
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        try:
            re.compile(pattern)
        except (re.error, OverflowError, RecursionError) as error:
            return f"stop_regex has a pattern that is not valid: {error}."
    return None


def _find_tokenizer_error(
    manager: TokenizerManager, given: dict[str, Any]
) -> str | None:
    if manager.server_args.skip_tokenizer_init:
        for name in _NEED_TOKENIZER:
            if given.get(name):
                return f"{name} needs a tokenizer: --skip-tokenizer-init leaves it out."
        return None
    if (
        given.get("min_new_tokens")
        and release.MIN_TOKENS_NEED_EOS
        and manager.tokenizer.eos_token_id is None
    ):
        return "min_new_tokens needs an EOS token: the tokenizer names none."
    return None


def _find_stop_error(manager: TokenizerManager, params: dict[str, Any]) -> str | None:
    """Return the error in `stop_token_ids`, or take out what no model can sample.

    If any request of a running batch has `min_new_tokens`, SGLang indexes the logits
    with the stop tokens of all of them.
    """
    ids = params.get("stop_token_ids")
    if ids is None:
        return None
    if not isinstance(ids, (list, tuple, set)):
        return "stop_token_ids must be a list of integers."
    known = [token_id for token_id in ids if token_id is not None]
    for token_id in known:
        error = find_range_error("Each of stop_token_ids", token_id, -INT64, INT64)
        if error is not None:
            return error
    vocab_size = manager.model_config.vocab_size
    params["stop_token_ids"] = [i for i in known if 0 <= i < vocab_size]
    return None


def _find_bias_error(manager: TokenizerManager, biases: Json) -> str | None:
    if not isinstance(biases, dict):
        return "logit_bias must be an object."
    for token_id, bias in biases.items():
        vocab_size = manager.model_config.vocab_size
        if not (str(token_id).isdecimal() and int(token_id) < vocab_size):
            return f"logit_bias must have keys from 0 to {vocab_size - 1}."
        if not _is_finite(bias) or abs(bias) > _LARGEST_BIAS:
            return f"logit_bias must have numbers up to {_LARGEST_BIAS} as values."
    return None


def _find_field_error(
    manager: TokenizerManager, obj: GenerateReqInput | EmbeddingReqInput
) -> str | None:
    count = _count_prompts(obj)
    for name in _ONE_A_PROMPT:
        value = read(obj, name)
        if isinstance(value, list) and len(value) != count:
            if name.startswith("bootstrap_") and _has_samples(obj):
                # Routers send a value for each sample; SGLang has one for all.
                return (
                    "n above 1 is not supported with prefill and decoding on separate "
                    f"servers: {name} may have only one value per prompt."
                )
            return f"{name} may be a list only in a batch, with one value per prompt."
    priority = read(obj, "priority")
    if priority is not None:
        error = find_range_error("priority", priority, -INT64, INT64)
        if error is not None:
            return error
    for value in _each(obj, "logprob_start_len"):
        error = find_range_error("logprob_start_len", value, -1, INT32)
        if error is not None:
            return error
    for value in _each(obj, "top_logprobs_num"):
        most = manager.model_config.vocab_size if value else 0
        error = find_range_error("top_logprobs_num", value, 0, most)
        if error is not None:
            return error
    for value in _each(obj, "positional_embed_overrides"):
        # Only a program that embeds the engine can pass such objects.
        if not hasattr(value, "positions"):
            return "positional_embed_overrides cannot be given in JSON."
    return (
        _find_scored_error(manager, obj, count)
        or _find_session_error(obj)
        or _find_processor_error(manager, obj)
    )


def _count_prompts(obj: GenerateReqInput | EmbeddingReqInput) -> int | None:
    """Return the number of prompts in a batch, None for a single request."""
    prompts = obj.text if obj.text is not None else obj.input_ids
    if isinstance(prompts, list) and not any(map(_is_integer, prompts[:1])):
        return len(prompts)
    return 1 if _has_samples(obj) else None


def _has_samples(obj: GenerateReqInput | EmbeddingReqInput) -> bool:
    """True if a request has `n` above 1."""
    params = obj.sampling_params
    return isinstance(params, dict) and (params.get("n") or 1) > 1


def _each(obj: GenerateReqInput | EmbeddingReqInput, name: str) -> list[Any]:
    """Return the values of a field that are not None, one or one per prompt."""
    value = read(obj, name)
    values = value if isinstance(value, list) else [value]
    return [one for one in values if one is not None]


def _find_scored_error(
    manager: TokenizerManager,
    obj: GenerateReqInput | EmbeddingReqInput,
    count: int | None,
) -> str | None:
    scored = read(obj, "token_ids_logprob")
    if scored is None:
        return None
    vocab_size = manager.model_config.vocab_size
    each = [scored]
    # SGLang tells the two forms apart by the type of the first value.
    if count is not None and any(isinstance(ids, list) for ids in scored[:1]):
        each = [ids or [] for ids in scored]
    for ids in each:
        if not (
            isinstance(ids, (list, tuple))
            and all(_is_integer(i) and 0 <= i < vocab_size for i in ids)
        ):
            return (
                f"token_ids_logprob must be a list of token IDs from 0 to "
                f"{vocab_size - 1}, or in a batch one for each prompt."
            )
    return None


def _find_session_error(obj: GenerateReqInput | EmbeddingReqInput) -> str | None:
    for params in _each(obj, "session_params"):
        for name, value in params.items():
            kind = _SESSION.get(name)
            if kind is None:
                return f"session_params has no field named {name}."
            if value is not None and not isinstance(value, kind):
                return f"session_params: {name} must be of type {kind.__name__}."
    return None


def _find_processor_error(
    manager: TokenizerManager, obj: GenerateReqInput | EmbeddingReqInput
) -> str | None:
    """Return why a logit processor of the request cannot be loaded.

    The scheduler loads it in the middle of a batch, and crashes if it cannot. Without
    --enable-custom-logit-processor, SGLang rejects the request itself.
    """
    given = _each(obj, "custom_logit_processor")
    if not given or not manager.server_args.enable_custom_logit_processor:
        return None
    from sglang.srt.sampling.custom_logit_processor import CustomLogitProcessor

    for text in given:
        try:
            CustomLogitProcessor.from_str(text)
        except Exception as error:
            name = type(error).__name__
            return f"custom_logit_processor cannot be loaded: {name}: {error}."
    return None
