"""Logprobs: missing ones are an error, and the others are written like SGLang's."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

orjson = pytest.importorskip("orjson")

from agentcore_patches.landing import release  # noqa: E402
from agentcore_patches.landing.http import logprobs  # noqa: E402
from agentcore_patches.landing.http.logprobs import ChatLogprobs  # noqa: E402
from tests.unit.small_server import tokenizer_manager  # noqa: E402


@pytest.fixture(autouse=True)
def _release(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An early release."""
    monkeypatch.setattr(release, "BYTES_OF_ID", False)
    monkeypatch.setattr(logprobs, "_openings", None)
    yield


EAGLE = {"speculative_algorithm": "EAGLE"}
DLLM = {"dllm_algorithm": "LowConfidence"}
PREFILL = {"max_new_tokens": 0}


@pytest.mark.parametrize(
    ("values", "params", "loses", "named"),
    [
        ({}, None, True, None),
        (EAGLE, None, True, "--disable-overlap-schedule"),
        ({**EAGLE, "disable_overlap_schedule": True}, None, True, None),
        # Later releases record logprobs with speculative decoding.
        (EAGLE, None, False, None),
        (DLLM, None, False, "--dllm-algorithm"),
        (DLLM, PREFILL, True, "--dllm-algorithm"),
        # Only generated tokens lack logprobs.
        (EAGLE, PREFILL, True, None),
        (EAGLE, [{"max_new_tokens": 1}, PREFILL], True, None),
        (EAGLE, [PREFILL, {"max_new_tokens": 2}], True, "--disable-overlap-schedule"),
    ],
)
def test_a_server_that_records_no_logprobs_is_recognized(
    monkeypatch: pytest.MonkeyPatch,
    values: dict[str, Any],
    params: Any,
    loses: bool,
    named: str | None,
) -> None:
    monkeypatch.setattr(release, "SPECULATION_LOSES_LOGPROBS", loses)
    error = logprobs.refusal(tokenizer_manager(**values), params)
    assert (error is None) == (named is None)
    if error is not None:
        assert error.startswith("logprobs are not supported by this server")
        assert str(named) in error


class Serving:
    """Makes logprobs as SGLang does, or a fork that adds a suffix to each token.

    Attributes:
        n_models: number of tokens converted to models.
    """

    tokenizer_manager = SimpleNamespace(tokenizer=None)

    def __init__(self, suffix: str) -> None:
        self.suffix = suffix
        self.n_models = 0

    def _process_response_logprobs(self, ret_item: dict[str, Any]) -> Any:
        rows = ret_item["meta_info"]["output_token_logprobs"]
        tops = ret_item["meta_info"].get("output_top_logprobs") or [None] * len(rows)
        self.n_models += len(rows)

        def entry(row: Any, suffix: str = "") -> dict[str, Any]:
            logprob, _, text = row
            raw = list(text.encode())
            return {"token": text + suffix, "bytes": raw, "logprob": float(logprob)}

        content = [
            {**entry(row, self.suffix), "top_logprobs": [*map(entry, top or ())]}
            for row, top in zip(rows, tops, strict=False)
        ]
        return SimpleNamespace(model_dump=lambda: {"content": content})


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


UNUSUAL: list[dict[str, Any]] = [
    {"output_token_logprobs": [(0, 7, "a")]},
    {"output_token_logprobs": [(-1.5, 7, "a")], "output_top_logprobs": [None]},
    {"output_token_logprobs": [(-1.5, 7, "a")], "output_top_logprobs": [None, None]},
]


@pytest.mark.parametrize("suffix", ["", "changed"])
def test_only_the_first_and_unusual_logprobs_of_a_stream_use_pydantic_models(
    suffix: str,
) -> None:
    serving: Any = Serving(suffix)
    writer = ChatLogprobs(serving)
    # An empty list does not decide how later logprobs are written.
    assert writer.dump({"output_token_logprobs": []}) == '{"content":[]}'
    every = [CHUNKS[0], *UNUSUAL, *CHUNKS, *UNUSUAL]
    for meta_info in every:
        ret_item = {"meta_info": meta_info}
        models = Serving(suffix)._process_response_logprobs(ret_item).model_dump()
        assert writer.dump(meta_info) == orjson.dumps(models).decode()
    n_tokens = sum(len(chunk["output_token_logprobs"]) for chunk in every)
    # A fork that changed the models writes all logprobs with them.
    assert serving.n_models == (n_tokens if suffix else 1 + 2 * len(UNUSUAL))


# A partial character, U+FFFD itself, two tokens with equal text, one without bytes.
TEXTS = ["a", "\ufffd", "\ufffd", "b", "b", "<|end|>"]
BYTES = [[97], [240], [239, 191, 189], [98], [98], None]


@pytest.mark.parametrize("of_id", [BYTES, None])
def test_bytes_are_those_of_the_id_in_releases_that_know_them(
    of_id: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    utils = SimpleNamespace(
        _is_byte_level_tokenizer=bool,
        token_id_to_bytes=lambda tokenizer, token_id: tokenizer[token_id],
    )
    monkeypatch.setitem(sys.modules, "sglang.srt.entrypoints.openai.utils", utils)
    monkeypatch.setattr(release, "BYTES_OF_ID", True)
    rows = [(-0.5, token_id, text) for token_id, text in enumerate(TEXTS)]
    tops = [rows, *[[]] * (len(rows) - 1)]
    meta_info = {"output_token_logprobs": rows, "output_top_logprobs": tops}
    content = json.loads(logprobs.write(meta_info, logprobs.Openings(of_id)))["content"]
    expected = [
        raw or [*text.encode()]
        for raw, text in zip(of_id or [None] * len(rows), TEXTS, strict=True)
    ]
    # Alternatives of equal text are all there.
    for entries in (content, content[0]["top_logprobs"]):
        assert [entry["token"] for entry in entries] == TEXTS
        assert [entry["bytes"] for entry in entries] == expected


def test_openings_are_shared_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = object()
    openings = logprobs.openings_of(tokenizer)
    assert logprobs.openings_of(tokenizer) is openings
    assert logprobs.openings_of(object()) is not openings
    monkeypatch.setattr(logprobs.Openings, "LIMIT", 10)
    for token_id in range(25):
        assert openings[token_id, "x"] == openings[0, "x"]
        assert len(openings) <= 10


def test_logprobs_after_a_stop_are_dropped() -> None:
    meta_info = {
        "id": "x",
        "output_token_logprobs": [0.5, 0.25],
        "output_top_logprobs": [[1], [2]],
    }
    given: dict[str, Any] = {"output_ids": [0], "meta_info": meta_info}
    ret = [given]
    logprobs.cut(ret)
    assert ret[0]["meta_info"] == {
        "id": "x",
        "output_token_logprobs": [0.5],
        "output_top_logprobs": [[1]],
    }
    assert len(given["meta_info"]["output_token_logprobs"]) == 2
