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

TRACED_ANSWERS = "agentcore_traced_answers_total"
STREAM_ERRORS = "agentcore_stream_errors_total"
PREFIX_TURNS = "agentcore_prefix_turns_total"
REQUIRED_TOKENS = "agentcore_prefix_required_tokens_total"
KEPT_TOKENS = "agentcore_prefix_kept_tokens_total"
MATCHED_TOKENS = "agentcore_prefix_template_matched_tokens_total"
MEMORY_MISSES = "agentcore_memory_misses_total"
MEMORY_BYTES = "agentcore_memory_bytes"
MEMORY_LIMIT = "agentcore_memory_limit_bytes"
MEMORY_ENTRIES = "agentcore_memory_entries"
REFUSED_PROMPTS = "agentcore_refused_prompts_total"
WEIGHT_UPDATES = "agentcore_weight_updates_total"
MIXED_REQUESTS = "agentcore_mixed_version_requests_total"
ABORTED_REQUESTS = "agentcore_aborted_requests_total"

OTHER = "other"

_SOURCE = {"source": ("request", "message", "server")}


class Metric(NamedTuple):
    """A metric as /metrics shows it.

    Attributes:
        name: its name; that of a counter ends in `_total`.
        about: one line of help.
        labels: all values of each label.
    """

    name: str
    about: str
    labels: Mapping[str, tuple[str, ...]] = {}


METRICS = (
    Metric(
        TRACED_ANSWERS,
        "Finished answers with token IDs.",
        {
            "endpoint": ("chat", "completions", "messages", "responses"),
            "mode": ("streamed", "whole"),
        },
    ),
    Metric(
        STREAM_ERRORS,
        "Streams that ended with an error because fields could not be added.",
    ),
    Metric(
        PREFIX_TURNS,
        "Turns with a prefix, or with one that was refused or not remembered.",
        {**_SOURCE, "result": ("continued", "refused", "missed")},
    ),
    Metric(REQUIRED_TOKENS, "Tokens of the prefixes of continued turns.", _SOURCE),
    Metric(
        KEPT_TOKENS,
        "Tokens of these prefixes with which the prompts start.",
        _SOURCE,
    ),
    Metric(
        MATCHED_TOKENS,
        "Tokens of these prefixes that the chat template alone would have given.",
        _SOURCE,
    ),
    Metric(
        MEMORY_MISSES,
        "Turns that the conversation memory did not find, by what differs first.",
        {
            "reason": (
                *("model", "cache_salt", "system", "tools", "template"),
                *("message", "ambiguous", "unusable", "unknown", OTHER),
            )
        },
    ),
    Metric(MEMORY_BYTES, "Bytes that the conversation memory uses."),
    Metric(MEMORY_LIMIT, "Bytes that the conversation memory may use."),
    Metric(MEMORY_ENTRIES, "Conversations whose tokens are remembered."),
    Metric(
        REFUSED_PROMPTS,
        "Prompts of token IDs that were refused before anything was generated.",
        {"reason": ("empty", "type", "vocabulary", "length", "prefix")},
    ),
    Metric(
        WEIGHT_UPDATES,
        "Requests to update weights.",
        {
            "kind": ("disk", "distributed", "tensor", "ipc"),
            "result": ("done", "failed"),
        },
    ),
    Metric(
        MIXED_REQUESTS,
        "Finished requests with tokens of more than one weight version.",
    ),
    Metric(
        ABORTED_REQUESTS,
        "Requests that the scheduler ended with an abort.",
        {"cause": ("asked", "rejected", "unavailable", "failed")},
    ),
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
