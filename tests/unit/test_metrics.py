"""Metrics: counts and their labels, and no metrics without the flag."""

from __future__ import annotations

import re
import sys
from http import HTTPStatus
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from agentcore_patches.landing.http import (
    ended_requests,
    metrics,
    remembered,
    streams,
    traces,
)

PAGE = Path(__file__).parents[2] / "docs/reference/metrics.md"


class Series:
    """Stand-in for a counter or gauge of prometheus_client, and for its series."""

    def __init__(self, name: str, documentation: str, *_: Any, **more: str) -> None:
        # The values of several tokenizer workers are added up.
        assert ("multiprocess_mode" in more) != name.endswith("_total")
        self.value = 0

    def labels(self, *values: str) -> Series:
        return Series("child_total", "")

    def inc(self, amount: int) -> None:
        self.value += amount


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start counting at zero, with a stand-in for prometheus_client."""
    module = ModuleType("prometheus_client")
    vars(module).update(Counter=Series, Gauge=Series)
    monkeypatch.setitem(sys.modules, "prometheus_client", module)
    monkeypatch.setattr(metrics, "_series", {})
    enabled: Any = SimpleNamespace(enable_metrics=True)
    metrics.start(enabled)


def counted() -> dict[tuple[str, ...], int]:
    """Return the series that are not 0."""
    return {key: one.value for key, one in metrics._series.items() if one.value}


def test_each_reason_of_the_memory_has_a_label_of_its_own(on: None) -> None:
    reasons = {
        **{part: part for part in remembered.HEAD_PARTS},
        "message 3": "message",
        **{name: name for name in ("ambiguous", "unusable", remembered.UNKNOWN)},
        "something else": "other",
    }
    for reason in reasons:
        metrics.count_miss(reason)
    assert counted() == {
        (metrics.MEMORY_MISSES, label): 1 for label in reasons.values()
    }
    labels = {key[1] for key in metrics._series if key[0] == metrics.MEMORY_MISSES}
    assert labels == {*reasons.values()}


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ({"type": "abort", "message": "Aborted"}, "asked"),
        ({"type": "abort", "status_code": None}, "asked"),
        ({"type": "abort", "status_code": 400}, "rejected"),
        ({"type": "abort", "status_code": HTTPStatus(503)}, "unavailable"),
        ({"type": "abort", "status_code": 500}, "failed"),
        ({"type": "stop", "matched": 7}, None),
        (None, None),
    ],
)
def test_aborts_are_counted_by_cause(on: None, reason: Any, cause: str | None) -> None:
    ended_requests.count(reason)
    expected = {} if cause is None else {(metrics.ABORTED_REQUESTS, cause): 1}
    assert counted() == expected


def test_a_failed_trace_does_not_count_as_a_traced_answer(on: None) -> None:
    trace = traces.Trace(incremental=False)
    traces.count(trace, "chat")
    trace.push(0, {"output_ids": [1], "meta_info": {}})
    traces.count(trace, "chat")
    trace.failed = True
    traces.count(trace, "chat")
    assert counted() == {(metrics.TRACED_ANSWERS, "chat", "streamed"): 1}


def test_an_error_in_a_stream_is_counted_once(on: None) -> None:
    error = streams.stream_error(ValueError("bad"))
    assert streams.stream_error(error) is error
    assert counted() == {(metrics.STREAM_ERRORS,): 1}


def test_the_page_lists_every_metric_label_and_value() -> None:
    page = PAGE.read_text()
    rows = [
        [cell.strip() for cell in row.split("|")[1:-1]]
        for row in page.splitlines()
        if row.startswith("| `agentcore_")
    ]
    assert [name for name, *_ in rows] == [f"`{one.name}`" for one in metrics.METRICS]
    for metric, (_, labels, _) in zip(metrics.METRICS, rows, strict=True):
        of_labels = {*metric.labels}.union(*metric.labels.values())
        assert {*re.findall(r"`([^`]+)`", labels)} == of_labels, metric.name
