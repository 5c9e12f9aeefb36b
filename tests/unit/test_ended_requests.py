"""Aborted and rejected requests, and batches that a pause splits."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any

import pytest

from agentcore_patches.landing import release
from agentcore_patches.landing.http.ended_requests import (
    finish,
    raise_refusal,
)
from agentcore_patches.landing.scheduler import requests
from agentcore_patches.landing.scheduler.requests import merge_last_batch


class Manager:
    """A tokenizer manager with one request, with the attributes that `finish` reads."""

    def __init__(self) -> None:
        self.server_args = SimpleNamespace(weight_version="v1")
        self.released: list[str] = []
        self.lora_registry = SimpleNamespace(release=self._release)
        self.state = SimpleNamespace(
            obj=SimpleNamespace(lora_path=None, lora_id=None, prefilled=(7, None)),
            output_ids=[1, 2, 3],
            customized_info_accumulated={"mirror": [4, 5, 6]},
            weight_versions=[["v0", 0, 3]],
        )
        self.rid_to_state: dict[str, Any] = {"x": self.state, "other": None}

    async def _release(self, lora_id: str) -> None:
        self.released.append(lora_id)

    def finish(self, is_incremental: bool, reason: Any = None) -> dict[str, Any]:
        """Abort the request; return its answer."""
        logprobs = [(-0.5, token_id, None) for token_id in (1, 2, 3)]
        meta_info: dict[str, Any] = {"id": "x", "output_token_logprobs": logprobs}
        meta_info["finish_reason"] = {"type": "abort"}
        out = {"text": "abc", "output_ids": [3], "meta_info": meta_info}
        abort: Any = SimpleNamespace(rid="x", finished_reason=reason)
        manager: Any = self

        async def run() -> None:
            finish(manager, manager.state, abort, out, is_incremental)

        asyncio.run(run())
        return out


def test_an_aborted_answer_is_complete_and_its_request_is_dropped() -> None:
    manager = Manager()
    out = manager.finish(is_incremental=False)
    assert manager.rid_to_state.keys() == {"other"}
    meta_info = out["meta_info"]
    assert out["text"] == "abc"
    assert out["output_ids"] == [1, 2, 3]
    assert out["output_ids"] is not manager.state.output_ids
    assert meta_info["mirror"] == [4, 5, 6]
    accumulated = manager.state.customized_info_accumulated
    assert meta_info["mirror"] is not accumulated["mirror"]
    assert len(meta_info["output_token_logprobs"]) == 3
    assert (meta_info["prompt_tokens"], meta_info["weight_version"]) == (7, "v0")
    assert meta_info["weight_versions"] == [{"version": "v0", "start": 0, "end": 3}]


def test_an_aborted_answer_lacks_what_is_unknown_or_internal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(release, "REPORTED_INFO", "customized_info_reported_keys")
    manager = Manager()
    manager.state.customized_info_reported_keys = {"entropy"}
    del manager.state.weight_versions, manager.state.obj.prefilled
    meta_info = manager.finish(is_incremental=False)["meta_info"]
    assert meta_info["weight_version"] == "v1"  # The server's.
    assert meta_info["weight_versions"] == []
    assert meta_info["prompt_tokens"] == 0
    assert "mirror" not in meta_info


@pytest.mark.parametrize(
    ("text_is_new", "logprobs_are_new"), [(False, False), (True, False), (True, True)]
)
def test_the_last_incremental_chunk_repeats_nothing(
    text_is_new: bool, logprobs_are_new: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release, "TEXT_IS_NEW", text_is_new)
    monkeypatch.setattr(release, "LOGPROBS_ARE_NEW", logprobs_are_new)
    out = Manager().finish(is_incremental=True)
    assert out["output_ids"] == out["meta_info"]["mirror"] == []
    assert out["text"] == ("" if text_is_new else "abc")
    n_logprobs = len(out["meta_info"]["output_token_logprobs"])
    assert n_logprobs == (0 if logprobs_are_new else 3)


@pytest.mark.parametrize(
    ("reason", "sglang_does_it", "released"),
    [
        (None, False, ["id"]),
        # If there is a reason, the code that releases the request hands on the answer.
        ({"type": "abort"}, False, []),
        (None, True, []),
    ],
)
def test_an_adapter_is_released_once(
    reason: Any,
    sglang_does_it: bool,
    released: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(release, "ABORTS_RELEASE_LORA", sglang_does_it)
    manager = Manager()
    manager.state.obj = SimpleNamespace(lora_path="adapter", lora_id="id")
    manager.finish(is_incremental=False, reason=reason)
    assert manager.released == released


def test_only_a_rejection_is_raised() -> None:
    for reason in (
        None,
        {"type": "stop", "matched": 2},
        {"type": "abort", "message": "Aborted", "status_code": None},
        {"type": "abort", "message": "Abort in waiting queue"},
        {"type": "abort", "message": "late", "status_code": 503},
    ):
        raise_refusal({"meta_info": {"finish_reason": reason}})
    bad = {
        "type": "abort",
        "message": "too long",
        "status_code": HTTPStatus.BAD_REQUEST,
    }
    with pytest.raises(ValueError, match="too long"):
        raise_refusal({"meta_info": {"finish_reason": bad}})


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


@pytest.mark.parametrize(
    ("request_", "already", "addressed"),
    [
        (SimpleNamespace(http_worker_ipc="worker"), None, "worker"),
        (SimpleNamespace(http_worker_ipc="worker"), "other", "other"),
        (None, None, None),
    ],
)
def test_an_output_goes_to_the_worker_of_its_request(
    request_: Any, already: str | None, addressed: str | None
) -> None:
    output: Any = SimpleNamespace(http_worker_ipc=already)
    requests.address(output, request_)
    assert output.http_worker_ipc == addressed
