"""Logprobs that the engine did not give are an error, never a shorter list."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from agentcore_patches.grafts.logprobs import (
    _cut_logprobs,
    check_logprobs_of_diffusion,
    check_logprobs_support,
)


def error_of_server(sampling_params: Any = None, **values: Any) -> str | None:
    """Why a server with these arguments gives no logprobs."""
    server_args = SimpleNamespace(
        **{
            "dllm_algorithm": None,
            "speculative_algorithm": None,
            "disable_overlap_schedule": False,
            **values,
        }
    )
    manager = SimpleNamespace(server_args=server_args)
    manager.check_logprobs_of_diffusion = partial(check_logprobs_of_diffusion, manager)
    error: str | None = check_logprobs_support(manager, sampling_params)
    return error


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"dllm_algorithm": "LowConfidence"}, "--dllm-algorithm"),
        ({"speculative_algorithm": "EAGLE"}, "--disable-overlap-schedule"),
    ],
)
def test_a_server_that_records_none_is_known(
    values: dict[str, Any], named: str
) -> None:
    error = error_of_server(**values)
    assert error is not None
    assert error.startswith("logprobs are not supported by this server")
    assert named in error


@pytest.mark.parametrize(
    "values",
    [{}, {"speculative_algorithm": "EAGLE", "disable_overlap_schedule": True}],
)
def test_other_servers_give_logprobs(values: dict[str, Any]) -> None:
    assert error_of_server(**values) is None


@pytest.mark.parametrize(
    ("sampling_params", "given"),
    [
        ({"max_new_tokens": 0}, True),
        ([{"max_new_tokens": 1}, {"max_new_tokens": 0}], True),
        ([{"max_new_tokens": 1}, {"max_new_tokens": 2}], False),
        ({"temperature": 0}, False),
        ({}, False),
    ],
)
def test_a_prompt_is_scored_by_a_server_that_records_none_later(
    sampling_params: Any, given: bool
) -> None:
    error = error_of_server(sampling_params, speculative_algorithm="EAGLE")
    assert (error is None) is given
    assert error_of_server(sampling_params, dllm_algorithm="LowConfidence")


def answer(n_tokens: int, **meta_info: Any) -> dict[str, Any]:
    return {"text": "-", "output_ids": list(range(n_tokens)), "meta_info": meta_info}


@pytest.mark.parametrize(
    "meta_info", [{}, {"output_token_logprobs": None}, {"output_token_logprobs": [0.5]}]
)
def test_fewer_logprobs_than_tokens_are_an_error(meta_info: dict[str, Any]) -> None:
    ret = [answer(1, output_token_logprobs=[0.5]), answer(2, **meta_info)]
    with pytest.raises(ValueError, match=r"The engine gave [01] logprobs for 2 tokens"):
        _cut_logprobs(None, ret)


def test_an_answer_with_all_of_them_stays_as_it_is() -> None:
    ret = [whole := answer(2, output_token_logprobs=[0.5, 0.25])]
    _cut_logprobs(None, ret)
    assert ret[0] is whole


def test_logprobs_of_what_was_generated_after_a_stop_are_cut_off() -> None:
    given = answer(
        1, output_token_logprobs=[0.5, 0.25], output_top_logprobs=[[1], [2]], id="x"
    )
    ret = [given]
    _cut_logprobs(None, ret)
    assert ret[0]["meta_info"] == {
        "id": "x",
        "output_token_logprobs": [0.5],
        "output_top_logprobs": [[1]],
    }
    assert len(given["meta_info"]["output_token_logprobs"]) == 2
