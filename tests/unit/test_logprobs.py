"""Logprobs that the engine did not give are an error, never a shorter list."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from agentcore_patches.grafts.logprobs import _check_logprobs_support, _cut_logprobs


def server_args(**values: Any) -> SimpleNamespace:
    return SimpleNamespace(
        **{
            "dllm_algorithm": None,
            "speculative_algorithm": None,
            "disable_overlap_schedule": False,
            **values,
        }
    )


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
    error = _check_logprobs_support(server_args(**values))
    assert error is not None
    assert error.startswith("logprobs are not supported by this server")
    assert named in error


@pytest.mark.parametrize(
    "values",
    [{}, {"speculative_algorithm": "EAGLE", "disable_overlap_schedule": True}],
)
def test_other_servers_give_logprobs(values: dict[str, Any]) -> None:
    assert _check_logprobs_support(server_args(**values)) is None


def answer(n_tokens: int, **meta_info: Any) -> dict[str, Any]:
    return {"text": "-", "output_ids": list(range(n_tokens)), "meta_info": meta_info}


@pytest.mark.parametrize(
    "meta_info", [{}, {"output_token_logprobs": None}, {"output_token_logprobs": [0.5]}]
)
def test_fewer_logprobs_than_tokens_are_an_error(meta_info: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"The engine gave [01] logprobs for 2 tokens"):
        _cut_logprobs(answer(2, **meta_info))


def test_an_answer_with_all_of_them_is_handed_on_as_it_is() -> None:
    whole = answer(2, output_token_logprobs=[0.5, 0.25])
    assert _cut_logprobs(whole) is whole


def test_logprobs_of_what_was_generated_after_a_stop_are_cut_off() -> None:
    given = answer(
        1, output_token_logprobs=[0.5, 0.25], output_top_logprobs=[[1], [2]], id="x"
    )
    cut = _cut_logprobs(given)
    assert cut["meta_info"] == {
        "id": "x",
        "output_token_logprobs": [0.5],
        "output_top_logprobs": [[1]],
    }
    assert len(given["meta_info"]["output_token_logprobs"]) == 2
