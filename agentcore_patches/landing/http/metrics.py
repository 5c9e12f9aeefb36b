"""Counters of what the patches do, on SGLang's /metrics (--enable-metrics).

Landing code calls `count` once per answer, request or weight update, never per chunk.
Without --enable-metrics nothing is counted, and prometheus_client is not imported.

SGLang runs prometheus_client in its multiprocess mode: each tokenizer worker writes its
values to files in PROMETHEUS_MULTIPROC_DIR, and /metrics of any worker adds them up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from sglang.srt.server_args import ServerArgs

OTHER = "other"

_SOURCES = ("request", "message", "server")


class Metric(NamedTuple):
    """A metric as /metrics shows it, with all values of each label.

    The name of a counter ends in `_total`.
    """

    name: str
    about: str
    labels: Mapping[str, tuple[str, ...]]


METRICS: list[Metric] = []


def _declare(name: str, about: str, **labels: tuple[str, ...]) -> str:
    METRICS.append(Metric(name, about, labels))
    return name


TRACED_ANSWERS = _declare(
    "agentcore_traced_answers_total",
    "Finished answers with token IDs.",
    endpoint=("chat", "completions", "messages", "responses"),
    mode=("streamed", "whole"),
)
STREAM_ERRORS = _declare(
    "agentcore_stream_errors_total",
    "Streams that ended with an error because fields could not be added.",
)
PREFIX_TURNS = _declare(
    "agentcore_prefix_turns_total",
    "Turns with a prefix, or with one that was refused or not remembered.",
    source=_SOURCES,
    result=("continued", "refused", "missed"),
)
REQUIRED_TOKENS = _declare(
    "agentcore_prefix_required_tokens_total",
    "Tokens of the prefixes of continued turns.",
    source=_SOURCES,
)
KEPT_TOKENS = _declare(
    "agentcore_prefix_kept_tokens_total",
    "Tokens of these prefixes with which the prompts start.",
    source=_SOURCES,
)
MATCHED_TOKENS = _declare(
    "agentcore_prefix_template_matched_tokens_total",
    "Tokens of these prefixes that the chat template alone would have given.",
    source=_SOURCES,
)
MEMORY_MISSES = _declare(
    "agentcore_memory_misses_total",
    "Turns that the conversation memory did not find, by what differs first.",
    reason=(
        *("model", "cache_salt", "system", "tools", "template"),
        *("message", "ambiguous", "unusable", "unknown", OTHER),
    ),
)
MEMORY_BYTES = _declare(
    "agentcore_memory_bytes", "Bytes that the conversation memory uses."
)
MEMORY_LIMIT = _declare(
    "agentcore_memory_limit_bytes", "Bytes that the conversation memory may use."
)
MEMORY_ENTRIES = _declare(
    "agentcore_memory_entries", "Conversations whose tokens are remembered."
)
REFUSED_PROMPTS = _declare(
    "agentcore_refused_prompts_total",
    "Prompts of token IDs that were refused before anything was generated.",
    reason=("empty", "type", "vocabulary", "length", "prefix"),
)
WEIGHT_UPDATES = _declare(
    "agentcore_weight_updates_total",
    "Requests to update weights.",
    kind=("disk", "distributed", "tensor", "ipc"),
    result=("done", "failed"),
)
MIXED_REQUESTS = _declare(
    "agentcore_mixed_version_requests_total",
    "Finished requests with tokens of more than one weight version.",
)
ABORTED_REQUESTS = _declare(
    "agentcore_aborted_requests_total",
    "Requests that the scheduler ended with an abort.",
    cause=("asked", "rejected", "unavailable", "failed"),
)

# The series of this process, by name and label values; empty without --enable-metrics.
_series: dict[tuple[str, ...], Any] = {}


def start(server_args: ServerArgs) -> None:
    """Create the metrics if the server has metrics.

    prometheus_client must not be imported before SGLang sets PROMETHEUS_MULTIPROC_DIR.
    Every series starts at 0, so that the first increase is seen as one.
    """
    if not server_args.enable_metrics or _series:
        return
    from prometheus_client import Counter, Gauge

    for metric in METRICS:
        if metric.name.endswith("_total"):
            made: Any = Counter(metric.name, metric.about, [*metric.labels])
        else:
            made = Gauge(metric.name, metric.about, multiprocess_mode="livesum")
        for values in label_values(metric):
            key = (metric.name, *values)
            _series[key] = made.labels(*values) if values else made


def label_values(metric: Metric) -> Iterator[tuple[str, ...]]:
    """Yield the label values of each series of a metric."""
    return product(*metric.labels.values())


def is_on() -> bool:
    """True if this process counts."""
    return bool(_series)


def count(name: str, *values: str, by: int = 1) -> None:
    """Add to the counter with these label values; without such a series, do nothing."""
    one = _series.get((name, *values))
    if one is not None:
        one.inc(by)


def set_to(name: str, value: int) -> None:
    """Set a gauge."""
    one = _series.get((name,))
    if one is not None:
        one.set(value)


def count_miss(missed: str) -> None:
    """Count a turn that the memory did not find, by its `metadata.prefix.missed`."""
    reason = "message" if missed.startswith("message ") else missed
    known = (MEMORY_MISSES, reason) in _series
    count(MEMORY_MISSES, reason if known else OTHER)
