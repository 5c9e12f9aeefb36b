"""Metrics: their labels, and the page that lists them."""

from __future__ import annotations

import re
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from agentcore_patches.landing.http import ended_requests, metrics

PAGE = Path(__file__).parents[2] / "docs/reference/metrics.md"


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
def test_aborts_are_counted_by_cause(
    monkeypatch: pytest.MonkeyPatch, reason: Any, cause: str | None
) -> None:
    counted: list[tuple[str, ...]] = []
    monkeypatch.setattr(metrics, "count", lambda *labels: counted.append(labels))
    ended_requests.count(reason)
    assert counted == ([] if cause is None else [(metrics.ABORTED_REQUESTS, cause)])


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
