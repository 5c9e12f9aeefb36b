"""How requests end that the scheduler refuses, and batches that a pause splits."""

from __future__ import annotations

from http import HTTPStatus
from types import SimpleNamespace
from typing import Any

import pytest

from agentcore_patches.grafts.ended_requests import _merge_last_batch, _raise_refusal


def content(finish_reason: dict[str, Any] | None) -> dict[str, Any]:
    return {"meta_info": {"finish_reason": finish_reason}}


def test_a_refusal_is_raised_with_its_message() -> None:
    reason = {
        "type": "abort",
        "message": "too long",
        "status_code": HTTPStatus.BAD_REQUEST,
    }
    with pytest.raises(ValueError, match="too long"):
        _raise_refusal(None, content(reason))


@pytest.mark.parametrize(
    "reason",
    [
        None,
        {"type": "stop", "matched": 2},
        {"type": "length", "length": 3},
        {"type": "abort", "message": "Aborted", "status_code": None},
        {"type": "abort", "message": "Abort in waiting queue"},
        {"type": "abort", "message": "late", "status_code": 503},
    ],
)
def test_every_other_chunk_goes_on(reason: dict[str, Any] | None) -> None:
    _raise_refusal(None, content(reason))


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
    scheduler = SimpleNamespace(running_batch=Batch(*running), last_batch=Batch(*last))
    _merge_last_batch(scheduler)
    assert scheduler.running_batch.reqs == [*running, *last]
