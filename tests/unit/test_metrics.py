"""Metrics: counts and their labels, and no metrics without the flag."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest

from agentcore_patches.landing import (
    ended_requests,
    metrics,
    prefix,
    prompts,
    release,
    remembered,
    streams,
    traces,
    weight_versions,
)
from agentcore_patches.patches import registry

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/reference/metrics.md"

ON: Any = SimpleNamespace(enable_metrics=True)
OFF: Any = SimpleNamespace(enable_metrics=False)


class Series:
    """Stand-in for a counter or gauge of prometheus_client, and for its series."""

    made: ClassVar[dict[str, Series]] = {}

    def __init__(
        self,
        name: str,
        documentation: str,
        labelnames: Any = (),
        multiprocess_mode: str = "",
    ):
        assert name not in self.made and documentation.endswith(".")
        # The values of several tokenizer workers are added up.
        assert (multiprocess_mode == "livesum") != name.endswith("_total")
        self.made[name] = self
        self.labelnames = labelnames
        self.children: dict[tuple[str, ...], Series] = {}
        self.value = 0

    def labels(self, *values: str) -> Series:
        assert len(values) == len(self.labelnames)
        child = Series.__new__(Series)
        child.value = 0
        return self.children.setdefault(values, child)

    def inc(self, amount: int) -> None:
        self.value += amount

    def set(self, value: int) -> None:
        self.value = value


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Reset all counters, with a stand-in for prometheus_client."""
    module = ModuleType("prometheus_client")
    vars(module).update(Counter=Series, Gauge=Series)
    monkeypatch.setitem(sys.modules, "prometheus_client", module)
    monkeypatch.setattr(metrics, "_series", {})
    monkeypatch.setattr(Series, "made", {})
    yield


@pytest.fixture
def on() -> None:
    metrics.start(ON)


def counted() -> dict[tuple[str, ...], int]:
    """Return the series that are not 0."""
    return {key: one.value for key, one in metrics._series.items() if one.value}


def test_without_the_flag_nothing_is_imported_or_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    metrics.start(OFF)
    metrics.count(metrics.MIXED_REQUESTS)
    metrics.set_to(metrics.MEMORY_BYTES, 7)
    metrics.count_miss("system")
    assert not metrics.is_on() and metrics._series == {}


def test_all_series_exist_from_the_start_and_once() -> None:
    metrics.start(ON)
    metrics.start(ON)
    assert metrics.is_on() and not counted()
    for metric in metrics.METRICS:
        made = Series.made[metric.name]
        assert list(metric.labels) == list(made.labelnames)
        assert set(made.children) == {*metrics.label_values(metric)} - {()}
    assert len(metrics._series) < 100


@pytest.mark.parametrize("patch", registry.names())
def test_a_missing_patch_has_no_metrics(
    monkeypatch: pytest.MonkeyPatch, patch: str
) -> None:
    monkeypatch.setattr(release, "PATCHES", (patch,))
    metrics.start(ON)
    names = {name for name, *_ in metrics._series}
    # The hooks that count, by the landing code that they call.
    called = " ".join(
        edit.new_code for edit in registry.edits(patch, "0.5.9") if edit.new_code
    )
    for name, code in (
        (metrics.TRACED_ANSWERS, "traces.chat"),
        (metrics.PREFIX_TURNS, "prefix.continued"),
        (metrics.MEMORY_MISSES, "prefix.continued"),
        (metrics.MEMORY_BYTES, "prefix.continued"),
        (metrics.WEIGHT_UPDATES, "weight_versions.counted"),
        (metrics.MIXED_REQUESTS, "weight_versions.take"),
        (metrics.ABORTED_REQUESTS, "ended_requests.count"),
        (metrics.REFUSED_PROMPTS, "prompts.refuse"),
    ):
        assert (name in names) == (code in called), name


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
    assert len(counted()) == sum(
        name == metrics.MEMORY_MISSES for name, *_ in counted()
    )
    labels = {key[1] for key in metrics._series if key[0] == metrics.MEMORY_MISSES}
    assert labels == {*reasons.values()}


def test_turns_are_counted_by_source_with_their_tokens(on: None) -> None:
    for source in ("request", "server"):
        turn = prefix.Turn(None, None, 99)
        turn.count()
        turn.metadata = {
            "required": 9,
            "kept": 8,
            "template_matched": 5,
            "source": source,
        }
        turn.count()
    turn.miss("message 0")
    turn.count()
    prefix.count_refused("message")
    assert counted() == {
        (metrics.PREFIX_TURNS, "server", "missed"): 1,
        (metrics.MEMORY_MISSES, "message"): 1,
        (metrics.PREFIX_TURNS, "message", "refused"): 1,
        (metrics.REFUSED_PROMPTS, "prefix"): 1,
        **{
            key: value
            for source in ("request", "server")
            for key, value in {
                (metrics.PREFIX_TURNS, source, "continued"): 1,
                (metrics.REQUIRED_TOKENS, source): 9,
                (metrics.KEPT_TOKENS, source): 8,
                (metrics.MATCHED_TOKENS, source): 5,
            }.items()
        },
    }


@pytest.mark.parametrize(
    ("token_ids", "reason"),
    [
        ([], "empty"),
        (["7"], "type"),
        ([[1], 2], "type"),
        ([100], "vocabulary"),
        ([7] * 9, "length"),
    ],
)
def test_refused_prompts_are_counted_once(
    on: None, token_ids: list[Any], reason: str
) -> None:
    manager: Any = SimpleNamespace(
        server_args=SimpleNamespace(allow_auto_truncate=False),
        context_len=9,
        num_reserved_tokens=0,
        is_generation=False,
        mm_processor=None,
        model_config=SimpleNamespace(vocab_size=100),
    )
    assert prompts.check_prompt(manager, [7]) is None
    assert not counted()
    assert prompts.check_prompt(manager, token_ids) is not None
    assert counted() == {(metrics.REFUSED_PROMPTS, reason): 1}


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ({"type": "abort", "message": "Aborted"}, "asked"),
        ({"type": "abort", "status_code": None}, "asked"),
        ({"type": "abort", "status_code": 400}, "rejected"),
        (
            {"type": "abort", "status_code": HTTPStatus.SERVICE_UNAVAILABLE},
            "unavailable",
        ),
        ({"type": "abort", "status_code": 500}, "failed"),
        ({"type": "stop", "matched": 7}, None),
        (None, None),
    ],
)
def test_aborts_are_counted_by_cause(on: None, reason: Any, cause: str | None) -> None:
    ended_requests.count(reason)
    expected = {} if cause is None else {(metrics.ABORTED_REQUESTS, cause): 1}
    assert counted() == expected


def test_updates_are_counted_by_kind_and_result(on: None) -> None:
    async def update_weights_from_tensor(outcome: Any) -> Any:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    update = weight_versions.counted(update_weights_from_tensor)
    assert asyncio.run(update((True, "fine"))) == (True, "fine")
    assert asyncio.run(update((False, "bad"))) == (False, "bad")
    with pytest.raises(AssertionError):
        asyncio.run(update(AssertionError()))
    assert counted() == {
        (metrics.WEIGHT_UPDATES, "tensor", "done"): 1,
        (metrics.WEIGHT_UPDATES, "tensor", "failed"): 2,
    }


def test_a_finished_request_with_two_weight_versions_is_counted(on: None) -> None:
    state: Any = SimpleNamespace(weight_versions=[["a", 0, 2], ["b", 2, 3]])
    weight_versions.tell(state, {"finish_reason": None})
    assert not counted()
    weight_versions.tell(state, {"finish_reason": {"type": "stop"}})
    state.weight_versions = [["b", 0, 2]]
    weight_versions.tell(state, {"finish_reason": {"type": "stop"}})
    assert counted() == {(metrics.MIXED_REQUESTS,): 1}


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


def quoted(text: str) -> set[str]:
    return set(re.findall(r"`([^`]+)`", text))


def test_the_page_lists_every_metric_label_and_value() -> None:
    page = PAGE.read_text()
    rows = [
        [cell.strip() for cell in row.split("|")[1:-1]]
        for row in page.splitlines()
        if row.startswith("| `agentcore_")
    ]
    assert [name for name, *_ in rows] == [f"`{one.name}`" for one in metrics.METRICS]
    for metric, (_, labels, _, patches) in zip(metrics.METRICS, rows, strict=True):
        of_labels = {*metric.labels}.union(*metric.labels.values())
        assert quoted(labels) == of_labels, metric.name
        # A row omits patches that another patch of the row requires.
        included = {"vllm-api"} | ({"weight-versions"} & {*metric.patches})
        if "token-ids" not in metric.patches:
            included.discard("weight-versions")
        said = "" if not metric.patches else patches
        assert quoted(said) == {*metric.patches} - included, metric.name
        assert (patches == "all") == (not metric.patches)
