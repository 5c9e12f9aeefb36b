"""Fields of requests: values that the engine accepts pass, others are named."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcore_patches.landing import request_fields

VOCAB_SIZE = 100


def any_parameters(**params: Any) -> None:
    """Sampling parameters of any name."""


def known_parameters(
    *, temperature: float = 1, top_k: int = -1, is_normalized: bool = False
) -> None:
    """Sampling parameters of two names, and one that SGLang sets."""


MANAGER: Any = SimpleNamespace(
    sampling_params_class=any_parameters,
    model_config=SimpleNamespace(vocab_size=VOCAB_SIZE),
    server_args=SimpleNamespace(dp_size=2, skip_tokenizer_init=False),
    tokenizer=SimpleNamespace(eos_token_id=2),
)

NAN, INFINITY = float("nan"), float("inf")


def error(sampling_params: Any = None, **fields: Any) -> str | None:
    """Return the error of a request, by default one with a single prompt."""
    prompt = {"text": None, "input_ids": [5, 6]}
    obj: Any = SimpleNamespace(sampling_params=sampling_params, **{**prompt, **fields})
    return request_fields.find_error(MANAGER, obj)


GOOD: dict[str, list[Any]] = {
    "max_new_tokens": [None, 0, 16, 2**40],
    "min_new_tokens": [0, 4],
    "n": [1, 512],
    "top_k": [-1, 1, 2**30],
    "stream_interval": [1],
    "sampling_seed": [0, 2**40, None],
    "temperature": [0, 0.0, 1e-9, 2],
    "repetition_penalty": [1, 0.5],
    "json_schema": [None, "{}"],
    "structural_tag": [None, "", "{}"],
    "ignore_eos": [True, False, None],
    "stop": [None, "", "a", ["a", "b"], ()],
    "stop_regex": ["a+", ["a", "b"]],
    "stop_token_ids": [None, [], [5, None], {5}, [VOCAB_SIZE]],
    "logit_bias": [None, {}, {"5": -100, "6": 1.5}],
    "custom_params": [{"anything": [1]}],
}
BAD: dict[str, list[Any]] = {
    "max_new_tokens": [-1, 0.5, "5", True, [5], 2**63],
    "min_new_tokens": [-1, 2**31],
    "n": [0, -1, 2**31, "2"],
    "top_k": [2**31, "5"],
    "stream_interval": [0, -1],
    "beam_width": [0, "x", [2]],
    "sampling_seed": [2**63, "a"],
    "temperature": [NAN, INFINITY, "1", True, [1], 2**2000],
    "top_p": [NAN, "1"],
    "repetition_penalty": [0, 1e-300, NAN],
    "json_schema": [{}, 1, ["{}"]],
    "structural_tag": [{}],
    "ignore_eos": ["yes", 2, [True]],
    "stop": [1, [1], [None], {"a": 1}],
    "stop_regex": ["(", ["a", "["], 1],
    "stop_token_ids": [5, "5", ["5"], [0.5], [[5]], [2**64]],
    "logit_bias": [
        {"-1": 1},
        {str(VOCAB_SIZE): 1},
        {"a": 1},
        {"5": NAN},
        [],
        {"5": {}},
    ],
}


@pytest.mark.parametrize("name", GOOD)
def test_values_that_the_engine_accepts_pass(name: str) -> None:
    for value in GOOD[name]:
        assert error({name: value}) is None, value


@pytest.mark.parametrize("name", BAD)
def test_a_value_that_the_engine_rejects_is_refused_by_name(name: str) -> None:
    for value in BAD[name]:
        for params in ({name: value}, [{}, {name: value}]):
            message = error(params, input_ids=[[5], [6]])
            assert message is not None and name in message, value


def test_an_unknown_parameter_is_refused_by_name() -> None:
    manager = SimpleNamespace(
        **{**vars(MANAGER), "sampling_params_class": known_parameters}
    )
    obj: Any = SimpleNamespace(text="a", input_ids=None)
    for obj.sampling_params, unknown in (
        ({"temperature": 0, "top_k": 5}, None),
        ({"temperature": 0, "max_tokens": None}, "max_tokens"),
        ([{}, {"top_kk": 0}], "top_kk"),
        ({"is_normalized": True}, "is_normalized"),
    ):
        message = request_fields.find_error(manager, obj)
        assert (message is None) == (unknown is None)
        assert unknown is None or f"named {unknown} " in str(message)


@given(st.integers(0, 2**40))
def test_an_integer_may_have_a_decimal_point(number: int) -> None:
    params = {"max_new_tokens": float(number)}
    assert error(params) is None
    assert params == {"max_new_tokens": number}
    assert type(params["max_new_tokens"]) is int


def test_a_flag_may_be_0_or_1() -> None:
    params = {"ignore_eos": 1, "no_stop_trim": 0}
    assert error(params) is None
    assert params["ignore_eos"] is True and params["no_stop_trim"] is False


def test_a_null_flag_or_an_empty_tag_counts_as_absent() -> None:
    params: dict[str, Any] = dict.fromkeys(
        ("ignore_eos", "skip_special_tokens", "max_new_tokens")
    )
    params["structural_tag"] = ""
    assert error(params) is None
    assert params == {"max_new_tokens": None}


@pytest.mark.parametrize("more", [{}, {"min_new_tokens": 1}])
def test_stop_ids_outside_the_vocabulary_are_dropped(more: dict[str, Any]) -> None:
    outside = [-1, VOCAB_SIZE, None]
    params = {"stop_token_ids": [0, *outside, VOCAB_SIZE - 1], **more}
    assert error(params) is None
    assert params["stop_token_ids"] == [0, VOCAB_SIZE - 1]


@pytest.mark.parametrize("value", [[], "x", 5])
def test_sampling_params_of_another_type_are_refused(value: Any) -> None:
    assert "sampling_params" in str(error(value))


FIELDS: list[tuple[dict[str, Any], bool]] = [
    ({"logprob_start_len": -1}, True),
    ({"logprob_start_len": -2}, False),
    ({"logprob_start_len": [0]}, False),
    ({"top_logprobs_num": VOCAB_SIZE}, True),
    ({"top_logprobs_num": VOCAB_SIZE + 1}, False),
    ({"top_logprobs_num": [1]}, False),
    ({"priority": 2**63}, False),
    ({"priority": [None]}, False),
    ({"return_logprob": [True]}, False),
    ({"return_hidden_states": [True]}, False),
    ({"lora_id": [None]}, False),
    ({"positional_embed_overrides": {"positions": [1]}}, False),
    ({"positional_embed_overrides": [None]}, False),
    ({"positional_embed_overrides": SimpleNamespace(positions=[1])}, True),
    ({"lora_path": ["a"], "sampling_params": {"n": 2}}, True),
    ({"token_ids_logprob": []}, True),
    ({"token_ids_logprob": [0, VOCAB_SIZE - 1]}, True),
    ({"token_ids_logprob": [VOCAB_SIZE]}, False),
    ({"token_ids_logprob": [-1]}, False),
    ({"token_ids_logprob": [[5]]}, False),
    ({"session_params": {"id": "a", "offset": None}}, True),
    ({"session_params": {"id": []}}, False),
    ({"data_parallel_rank": 1}, True),
    ({"data_parallel_rank": 2}, False),
    ({"data_parallel_rank": -1}, False),
    ({"routed_dp_rank": 1}, True),
    ({"routed_dp_rank": 2}, False),
]
OF_BATCH: list[tuple[dict[str, Any], bool]] = [
    ({"return_logprob": [True, False]}, True),
    ({"logprob_start_len": [0, -1], "top_logprobs_num": [2, 0]}, True),
    ({"top_logprobs_num": [2, VOCAB_SIZE + 1]}, False),
    ({"lora_path": ["a"]}, False),
    ({"extra_key": ["a", "b"]}, True),
    ({"token_ids_logprob": [5, 6]}, True),
    ({"token_ids_logprob": [[5], None]}, True),
    ({"token_ids_logprob": [None, [5]]}, False),
    ({"token_ids_logprob": [[5], [-1]]}, False),
    ({"token_ids_logprob": [[5], [[6]]]}, False),
]


@pytest.mark.parametrize("prompt", [[5, 6], [[5], [6, 7], [8]]])
@pytest.mark.parametrize("name", ["host", "port", "room", "pair_key"])
def test_samples_with_separate_prefill_are_refused_as_such(
    prompt: Any, name: str
) -> None:
    fields = {f"bootstrap_{name}": [1, 2]}
    message = error({"n": 2}, input_ids=prompt, **fields)
    assert message is not None and message.startswith("n above 1 is not supported")
    assert "n above" not in str(error({"n": 1}, input_ids=prompt, **fields))


@pytest.mark.parametrize(
    ("prompt", "fields", "is_good"),
    [
        *(([5, 6], *case) for case in FIELDS),
        *(([[5], [6, 7]], *case) for case in OF_BATCH),
    ],
)
def test_fields_of_a_request_and_of_a_batch(
    prompt: Any, fields: dict[str, Any], is_good: bool
) -> None:
    message = error(input_ids=prompt, **fields)
    assert (message is None) == is_good
    if message is not None:
        assert next(iter(fields)) in message
