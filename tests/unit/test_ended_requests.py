"""Aborted and rejected requests, and batches that a pause splits."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from agentcore_patches.landing import release
from agentcore_patches.landing.http import ended_requests, exchanges, metrics
from agentcore_patches.landing.scheduler.requests import merge_last_batch


def test_an_aborted_answer_has_the_weight_versions_of_its_tokens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(release, "ABORTS_RELEASE_LORA", True)
    state: Any = SimpleNamespace(
        obj=SimpleNamespace(), output_ids=[1, 2], customized_info_accumulated={}
    )
    exchanges.run_of(state).prefilled = exchanges.Prefilled(7)
    exchanges.run_of(state).weight_versions = [["v0", 0, 2]]
    manager: Any = SimpleNamespace(
        server_args=SimpleNamespace(weight_version="v1"), rid_to_state={}
    )
    abort: Any = SimpleNamespace(rid="x")
    meta_info: dict[str, Any] = {"finish_reason": {"type": "abort"}}
    out = {"meta_info": meta_info}
    ended_requests.finish(manager, state, abort, out, is_incremental=False)
    assert meta_info["weight_version"] == "v0"
    spans = [{"version": "v0", "start": 0, "end": 2}]
    assert meta_info["weight_versions"] == spans


@pytest.mark.parametrize(
    ("text_is_new", "logprobs_are_new"), [(False, False), (True, False), (True, True)]
)
def test_the_last_chunk_of_an_aborted_stream_repeats_nothing(
    text_is_new: bool, logprobs_are_new: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release, "TEXT_IS_NEW", text_is_new)
    monkeypatch.setattr(release, "LOGPROBS_ARE_NEW", logprobs_are_new)
    state: Any = SimpleNamespace(output_ids=[1, 2])
    logprobs = [(-0.5, 1, None), (-0.5, 2, None)]
    meta_info: dict[str, Any] = {"output_token_logprobs": logprobs}
    out = {"text": "ab", "output_ids": [2], "meta_info": meta_info}
    ended_requests._leave_out_what_was_sent(state, out)
    assert (out["text"], out["output_ids"]) == ("" if text_is_new else "ab", [])
    assert len(meta_info["output_token_logprobs"]) == (0 if logprobs_are_new else 2)


@pytest.mark.parametrize(
    ("reason", "n_released"),
    # With a reason, SGLang releases the adapter when it hands on the answer.
    [(None, 1), ({"type": "abort"}, 0)],
)
def test_an_adapter_is_released_once(reason: Any, n_released: int) -> None:
    release_adapter = mock.AsyncMock()
    registry = SimpleNamespace(release=release_adapter)

    async def abort() -> None:
        manager: Any = SimpleNamespace(lora_registry=registry)
        obj = SimpleNamespace(lora_path="adapter", lora_id="id")
        notice: Any = SimpleNamespace(finished_reason=reason)
        state: Any = SimpleNamespace(obj=obj)
        ended_requests._release_lora(manager, state, notice)

    asyncio.run(abort())
    assert release_adapter.call_count == n_released


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ({"type": "abort", "message": "Aborted"}, "asked"),
        ({"type": "abort", "status_code": HTTPStatus(503)}, "unavailable"),
        ({"type": "abort", "status_code": 500}, "failed"),
        ({"type": "stop", "matched": 7}, None),
        (None, None),
    ],
)
def test_aborts_are_counted_by_cause(
    monkeypatch: pytest.MonkeyPatch, reason: Any, cause: str | None
) -> None:
    counted: list[tuple[str, ...]] = []
    monkeypatch.setattr(metrics, "count", lambda *labels: counted.append(labels))
    ended_requests.count(reason)
    assert counted == ([] if cause is None else [(metrics.ABORTED_REQUESTS, cause)])


def test_only_a_rejection_is_raised() -> None:
    for reason in (
        None,
        {"type": "stop", "matched": 2},
        {"type": "abort", "message": "Aborted", "status_code": None},
        {"type": "abort", "message": "Abort in waiting queue"},
        {"type": "abort", "message": "late", "status_code": 503},
    ):
        ended_requests.raise_refusal({"meta_info": {"finish_reason": reason}})
    bad = {
        "type": "abort",
        "message": "too long",
        "status_code": HTTPStatus.BAD_REQUEST,
    }
    with pytest.raises(ValueError, match="too long"):
        ended_requests.raise_refusal({"meta_info": {"finish_reason": bad}})


class Batch:
    def __init__(self, *reqs: str) -> None:
        self.reqs = [*reqs]

    def is_empty(self) -> bool:
        return not self.reqs

    def merge_batch(self, other: Batch) -> None:
        if self.is_empty() or other.is_empty():
            raise AssertionError("SGLang cannot merge an empty batch")
        self.reqs += other.reqs


@pytest.mark.parametrize(
    ("running", "last"), [((), ()), ((), ("b",)), (("a",), ()), (("a",), ("b",))]
)
def test_batches_are_merged_whichever_is_empty(
    running: tuple[str, ...], last: tuple[str, ...]
) -> None:
    batches = {"running_batch": Batch(*running), "last_batch": Batch(*last)}
    scheduler: Any = SimpleNamespace(**batches)
    merge_last_batch(scheduler)
    assert scheduler.running_batch.reqs == [*running, *last]
