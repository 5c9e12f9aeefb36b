"""Logprobs: missing ones are an error, and the others are written like SGLang's."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

orjson = pytest.importorskip("orjson")

from agentcore_patches.landing import logprobs, release  # noqa: E402
from agentcore_patches.landing.logprobs import ChatLogprobs, cut  # noqa: E402
from tests.helpers.chat_logprobs import Serving  # noqa: E402


@pytest.fixture(autouse=True)
def _release(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An early release."""
    monkeypatch.setattr(release, "SPECULATION_LOSES_LOGPROBS", True)
    monkeypatch.setattr(release, "BYTES_OF_ID", False)
    monkeypatch.setattr(logprobs, "_openings", None)
    yield


def manager_of(**values: Any) -> Any:
    """Return a tokenizer manager with these arguments."""
    server_args = {
        "dllm_algorithm": None,
        "speculative_algorithm": None,
        "disable_overlap_schedule": False,
        **values,
    }
    return SimpleNamespace(server_args=SimpleNamespace(**server_args))


def error_of_server(sampling_params: Any = None, **values: Any) -> str | None:
    """Return why a server with these arguments returns no logprobs."""
    error: str | None = logprobs.refusal(manager_of(**values), sampling_params)
    return error


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"dllm_algorithm": "LowConfidence"}, "--dllm-algorithm"),
        ({"speculative_algorithm": "EAGLE"}, "--disable-overlap-schedule"),
    ],
)
def test_a_server_that_records_no_logprobs_is_recognized(
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
def test_other_servers_return_logprobs(values: dict[str, Any]) -> None:
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
def test_a_prompt_is_scored_if_only_generated_tokens_lack_logprobs(
    sampling_params: Any, given: bool
) -> None:
    error = error_of_server(sampling_params, speculative_algorithm="EAGLE")
    assert (error is None) is given
    assert error_of_server(sampling_params, dllm_algorithm="LowConfidence")


def test_later_releases_record_logprobs_with_speculative_decoding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(release, "SPECULATION_LOSES_LOGPROBS", False)
    assert error_of_server(speculative_algorithm="EAGLE") is None
    assert error_of_server(dllm_algorithm="LowConfidence") is not None


@pytest.mark.parametrize(
    ("asked", "refused"),
    [
        (True, True),
        (False, False),
        (None, False),
        ([False, True], True),
        ([False], False),
    ],
)
def test_only_requests_for_logprobs_are_refused(asked: Any, refused: bool) -> None:
    manager = manager_of(dllm_algorithm="LowConfidence")
    obj: Any = SimpleNamespace(return_logprob=asked, sampling_params=None)
    assert bool(logprobs.refusal_of(manager, obj)) is refused


def answer(n_tokens: int, **meta_info: Any) -> dict[str, Any]:
    return {"text": "-", "output_ids": list(range(n_tokens)), "meta_info": meta_info}


@pytest.mark.parametrize(
    "meta_info", [{}, {"output_token_logprobs": None}, {"output_token_logprobs": [0.5]}]
)
def test_fewer_logprobs_than_tokens_are_an_error(meta_info: dict[str, Any]) -> None:
    ret = [answer(1, output_token_logprobs=[0.5]), answer(2, **meta_info)]
    with pytest.raises(ValueError, match=r"The engine gave [01] logprobs for 2 tokens"):
        cut(ret)


def test_an_answer_with_all_logprobs_is_unchanged() -> None:
    ret = [whole := answer(2, output_token_logprobs=[0.5, 0.25])]
    cut(ret)
    assert ret[0] is whole


def test_logprobs_after_a_stop_are_dropped() -> None:
    given = answer(
        1, output_token_logprobs=[0.5, 0.25], output_top_logprobs=[[1], [2]], id="x"
    )
    ret = [given]
    cut(ret)
    assert ret[0]["meta_info"] == {
        "id": "x",
        "output_token_logprobs": [0.5],
        "output_top_logprobs": [[1]],
    }
    assert len(given["meta_info"]["output_token_logprobs"]) == 2


def test_tokens_without_text_are_named_by_their_ids() -> None:
    rows = [(-0.5, 7, None), (None, 8, None)]
    named = [(-0.5, 7, "token_id:7"), (None, 8, "token_id:8")]
    assert logprobs.name_by_id(rows) == named
    assert logprobs.name_top_by_id([rows, None, []]) == [named, None, []]


def test_tokens_with_text_keep_it() -> None:
    rows = [(-0.5, 7, ""), (-0.1, 8, "x")]
    assert logprobs.name_by_id(rows) is rows
    assert logprobs.name_by_id([]) == []
    assert logprobs.name_top_by_id([rows]) == [rows]
    assert logprobs.name_top_by_id(None) is None


def expected(meta_info: dict[str, Any], suffix: str = "") -> str:
    """Return the JSON of SGLang's models."""
    model = Serving(suffix)._process_response_logprobs({"meta_info": meta_info})
    text: bytes = orjson.dumps(model.model_dump())
    return text.decode()


CHUNKS: list[dict[str, Any]] = [
    {"output_token_logprobs": [(-0.5, 7, "\u00e9")]},
    {"output_token_logprobs": [(-1e-7, 7, "\u00e9")], "output_top_logprobs": None},
    {"output_token_logprobs": [(float("nan"), 7, '"')], "output_top_logprobs": []},
    {"output_token_logprobs": [(-0.5, 7, "a"), (-0.0, 8, "")]},
    {
        "output_token_logprobs": [(-0.5, 7, "a"), (-1.5, 8, "b")],
        "output_top_logprobs": [[(-0.5, 7, "a"), (-1.5, 8, "b")], []],
    },
]


def test_only_the_first_logprobs_of_a_stream_use_pydantic_models() -> None:
    serving = Serving()
    writer = ChatLogprobs(serving)
    for meta_info in [*CHUNKS, *CHUNKS]:
        written = writer.dump(meta_info)
        assert serving.n_models == 1
        assert written == expected(meta_info)


def test_changed_pydantic_models_write_all_logprobs_of_a_stream() -> None:
    serving = Serving("changed")
    writer = ChatLogprobs(serving)
    for meta_info in CHUNKS:
        assert writer.dump(meta_info) == expected(meta_info, "changed")
    assert serving.n_models == sum(
        len(chunk["output_token_logprobs"]) for chunk in CHUNKS
    )


@pytest.mark.parametrize(
    "unusual",
    [
        {"output_token_logprobs": [(0, 7, "a")]},
        {"output_token_logprobs": [(-1.5, 7, "a")], "output_top_logprobs": [None]},
        {
            "output_token_logprobs": [(-1.5, 7, "a")],
            "output_top_logprobs": [None, None],
        },
    ],
)
@pytest.mark.parametrize("position", [0, 1])
def test_logprobs_of_another_shape_use_pydantic_models(
    unusual: dict[str, Any], position: int
) -> None:
    serving = Serving()
    writer = ChatLogprobs(serving)
    chunks = [CHUNKS[0], CHUNKS[3], CHUNKS[4]]
    chunks.insert(position, unusual)
    for meta_info in chunks:
        assert writer.dump(meta_info) == expected(meta_info)
    assert serving.n_models == 2


@pytest.mark.parametrize(
    "refused",
    [
        {"output_token_logprobs": [(None, 7, "a")]},
        CHUNKS[4] | {"output_top_logprobs": [[(-0.5, 7, "a")]]},
    ],
    ids=["no number", "fewer tops than tokens"],
)
def test_values_that_the_pydantic_models_reject_are_an_error(
    refused: dict[str, Any],
) -> None:
    writer = ChatLogprobs(Serving())
    writer.dump(CHUNKS[0])
    with pytest.raises((TypeError, LookupError)):
        writer.dump(refused)


def test_an_empty_list_does_not_decide_how_later_logprobs_are_written() -> None:
    serving = Serving("changed")
    writer = ChatLogprobs(serving)
    empty: dict[str, Any] = {"output_token_logprobs": []}
    assert writer.dump(empty) == '{"content":[]}'
    assert writer.dump(CHUNKS[0]) == expected(CHUNKS[0], "changed")


def test_openings_are_shared_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = object()
    openings = logprobs.openings_of(tokenizer)
    assert logprobs.openings_of(tokenizer) is openings
    assert logprobs.openings_of(object()) is not openings
    monkeypatch.setattr(logprobs.Openings, "LIMIT", 10)
    for token_id in range(25):
        assert openings[token_id, "x"] == openings[0, "x"]
        assert len(openings) <= 10
