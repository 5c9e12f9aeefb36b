"""Sampling parameters of vLLM's `/inference/v1/generate`, translated to SGLang's.

A parameter that SGLang cannot honour is an error that names it. Nothing is dropped: a
trainer that does not get what it requests trains on the wrong distribution.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from ..http.request_fields import INT32, INT64
from .bodies import BadRequest, flag, integer, is_number, is_off

if TYPE_CHECKING:
    from sglang.srt.managers.tokenizer_manager import TokenizerManager

    from ..http.answers import Json

_NUMBERS = (
    "temperature",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
)
_MASK = "return_sampling_mask"
_FLAGS = ("ignore_eos", "skip_special_tokens", "spaces_between_special_tokens")

# Parameters with the same name and meaning in SGLang.
_SAME = (*_NUMBERS, *_FLAGS, "stop", "stop_token_ids", "logit_bias")

# Integers, their names in SGLang, and the values that vLLM accepts.
_INTEGERS = {
    "n": ("n", 1, INT32),
    "top_k": ("top_k", -1, INT32),
    "max_tokens": ("max_new_tokens", 1, INT64),
    "min_tokens": ("min_new_tokens", 0, INT32),
    "seed": ("sampling_seed", -INT64, INT64),
}

# Forms of `structured_outputs`, and SGLang's parameter for each.
_GRAMMARS = {
    "json": "json_schema",
    "json_object": "json_schema",
    "regex": "regex",
    "grammar": "ebnf",
    "choice": "ebnf",
    "structural_tag": "structural_tag",
}


class Sampling(NamedTuple):
    """Sampling parameters of one request.

    Attributes:
        params: SGLang's sampling parameters.
        logprobs: number of alternatives for each output token, None for no logprobs.
        prompt_logprobs: the same for each prompt token.
        experts_start: first token whose routed experts are returned.
        masks: fields of a choice with a sampling mask, and the engine's name for each.
    """

    params: dict[str, Any]
    logprobs: int | None
    prompt_logprobs: int | None
    experts_start: int
    masks: dict[str, str]


def translate(manager: TokenizerManager, given: Json, wants_text: bool) -> Sampling:
    """Translate `sampling_params` of a request."""
    if not isinstance(given, dict):
        raise BadRequest("sampling_params", "sampling_params must be an object.")
    left = {name: value for name, value in given.items() if value is not None}
    params: dict[str, Any] = {name: left.pop(name) for name in _SAME if name in left}

    def count(name: str, least: int, most: int) -> int | None:
        return integer(name, left.pop(name), least, most) if name in left else None

    for name, (sglang_name, least, most) in _INTEGERS.items():
        if (value := count(name, least, most)) is not None:
            params[sglang_name] = value
    limit = params.setdefault("max_new_tokens", None)  # Fills the context.
    if limit is not None and params.get("min_new_tokens", 0) > limit:
        raise BadRequest(
            "min_tokens", f"min_tokens must be at most max_tokens, {limit}."
        )
    if params.get("top_k") == 0:
        params["top_k"] = -1
    _check_same(params)
    _check_seed(manager, params)
    name = "include_stop_str_in_output"
    if flag(name, left.pop(name, None)):
        params["no_stop_trim"] = True
    if not flag("detokenize", left.pop("detokenize", True)):
        if wants_text:
            raise BadRequest("detokenize", 'output_mode "text" needs detokenize.')
        if params.get("stop"):
            raise BadRequest("detokenize", "stop needs detokenize.")
    count("output_kind", 0, 2)
    params.update(grammar(left.pop("structured_outputs", None)))
    masks = {}
    with_logprobs = flag(f"{_MASK}_logprobs", left.pop(f"{_MASK}_logprobs", None))
    if flag(_MASK, left.pop(_MASK, None)) or with_logprobs:
        masks["sampling_mask"] = "output_token_sampling_mask"
    if with_logprobs:
        masks["sampling_mask_logprobs"] = "output_token_sampling_logprobs"
    vocab_size = manager.model_config.vocab_size
    sampling = Sampling(
        params,
        logprobs=count("logprobs", 0, vocab_size),
        prompt_logprobs=count("prompt_logprobs", 0, vocab_size),
        experts_start=count("routed_experts_prompt_start", 0, INT32) or 0,
        masks=masks,
    )
    for name, value in left.items():
        if not is_off(value):
            raise BadRequest(
                name, f"sampling_params: {name} is not supported on SGLang. Omit it."
            )
    return sampling


def in_vllm_terms(given: dict[str, Any]) -> dict[str, Any]:
    """Translate SGLang's sampling parameters to vLLM's."""
    left = {name: value for name, value in given.items() if value is not None}
    params = {name: left.pop(name) for name in _SAME if name in left}
    for name, (sglang_name, *_) in _INTEGERS.items():
        if sglang_name in left:
            params[name] = left.pop(sglang_name)
    if left.pop("no_stop_trim", False):
        params["include_stop_str_in_output"] = True
    for form in ("json", "regex", "grammar", "structural_tag"):
        value = left.pop(_GRAMMARS[form], None)
        if value:
            params["structured_outputs"] = {form: value}
    for name, value in left.items():
        if not is_off(value):
            raise BadRequest(
                name, f"{name} is not supported here: vLLM has no such parameter."
            )
    return params


def _check_same(params: dict[str, Any]) -> None:
    """Reject values that vLLM rejects, and that SGLang serves or crashes on."""
    for name in _FLAGS:
        flag(name, params.get(name))
    for name in _NUMBERS:
        if not _is_finite(params.get(name, 0)):
            raise BadRequest(name, f"{name} must be a finite number.")
    biases = params.get("logit_bias", {})
    if not isinstance(biases, dict) or not all(map(_is_finite, biases.values())):
        raise BadRequest("logit_bias", "logit_bias must hold finite numbers.")
    stop = params.get("stop", [])
    strings = stop if isinstance(stop, list) else [stop]
    if not all(isinstance(one, str) and one for one in strings):
        # In SGLang, an empty one ends a choice after its first token.
        raise BadRequest("stop", "stop must be strings, none of them empty.")


def _is_finite(value: Json) -> bool:
    # The engine holds values in 32 bits.
    return is_number(value) and abs(value) < 3e38


def _check_seed(manager: TokenizerManager, params: dict[str, Any]) -> None:
    """Reject a seed that SGLang ignores, and samples that it makes with one seed."""
    if params.get("temperature") == 0:
        return
    if manager.server_args.enable_deterministic_inference:
        # A request without a seed has 42; in vLLM, sample i has the seed plus i.
        if params.get("n", 1) != 1:
            raise BadRequest(
                "n",
                "n above 1 is not supported with --enable-deterministic-inference: "
                "SGLang gives all samples the same seed. Send n requests.",
            )
    elif "sampling_seed" in params:
        raise BadRequest(
            "seed",
            "seed is not supported by this server: SGLang ignores it unless it is "
            "started with --enable-deterministic-inference.",
        )


def grammar(given: Json) -> dict[str, str]:
    """Return SGLang's parameter for `structured_outputs`; empty if there are none."""
    name = "structured_outputs"
    if is_off(given):
        return {}
    if not isinstance(given, dict):
        raise BadRequest(name, f"{name} must be an object.")
    forms = {form: value for form, value in given.items() if not is_off(value)}
    if len(forms) != 1:
        raise BadRequest(name, f"{name} must have exactly one form.")
    [(form, value)] = forms.items()
    if form not in _GRAMMARS:
        raise BadRequest(name, f"{name}: {form} is not supported on SGLang. Omit it.")
    if form == "json_object":
        value = {"type": "object"}
    if form == "choice":
        if not isinstance(value, list) or not all(isinstance(c, str) for c in value):
            raise BadRequest(name, f"{name}: choice must be a list of strings.")
        value = f"root ::= {' | '.join(json.dumps(choice) for choice in value)}"
    if form in ("json", "json_object", "structural_tag") and isinstance(value, dict):
        value = json.dumps(value)
    if not isinstance(value, str):
        raise BadRequest(name, f"{name}: {form} has a value of the wrong type.")
    return {_GRAMMARS[form]: value}
