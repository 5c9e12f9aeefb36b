"""The counters of /metrics with --enable-metrics, event by event."""

from __future__ import annotations

import itertools
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

from agentcore_patches.landing.http import metrics
from agentcore_verify import client
from agentcore_verify.server import Server
from agentcore_verify.subject import Subject
from tests.helpers.conversing import USER, take_turn
from tests.helpers.endpoints import (
    CHAT,
    COMPLETIONS,
    MESSAGES,
    RESPONSES,
    answers,
    body_to,
    is_traced,
    send,
)
from tests.helpers.servers import Launch, Trees, in_one_mode, wait_until_held
from tests.helpers.waiting import wait_until
from tests.live.conftest import PREFIX_CACHE

LONG = body_to(CHAT, 100, "long")

Series = dict[tuple[str, ...], float]
LABELS = {metric.name: metric.labels for metric in metrics.METRICS}

# With a conversation memory, or with several tokenizer workers.
SERVERS: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "memory": ((), {PREFIX_CACHE: "1"}),
    "workers": (("--tokenizer-worker-num", "2"), {}),
}


@pytest.fixture(scope="module", params=SERVERS)
def counting(
    trees: Trees, launch: Launch, request: pytest.FixtureRequest
) -> Iterator[Server]:
    """A server with metrics."""
    args, env = SERVERS[request.param]
    with launch(trees.patched, "--enable-metrics", *args, env=env) as running:
        yield running


with_memory = pytest.mark.parametrize("counting", ["memory"], indirect=True)


def scrape(server: Server) -> str:
    response = requests.get(f"{server.base_url}/metrics", timeout=30)
    assert response.status_code == 200
    assert "sglang:" in response.text
    return response.text


def series(server: Server) -> Series:
    """Return the values of agentcore's metrics, by name and label values in order."""
    found: Series = {}
    for family in text_string_to_metric_families(scrape(server)):
        for sample in family.samples:
            if sample.name.startswith("agentcore_"):
                labels = LABELS[sample.name]
                assert sample.labels.keys() == {*labels}, "no label of another kind"
                key = (sample.name, *(sample.labels[label] for label in labels))
                assert key not in found, "each series is listed once"
                found[key] = sample.value
    return found


def totals(server: Server) -> Counter[tuple[str, ...]]:
    """Return the values of the counters that are not zero."""
    return Counter(
        {
            key: int(value)
            for key, value in series(server).items()
            if key[0].endswith("_total") and value
        }
    )


@contextmanager
def counted(
    server: Server, expected: Mapping[tuple[str, ...], int]
) -> Iterator[Counter[tuple[str, ...]]]:
    """Check that the block increases exactly these counters by these amounts.

    It may add to what is expected.
    """
    before, wanted = totals(server), Counter(expected)
    yield wanted
    # A client gets a stream's last line before the server counts it.
    wait_until(lambda: not wanted - (totals(server) - before), 10)
    assert totals(server) - before == wanted


def answered(server: Server, path: str, streaming: bool, **more: Any) -> None:
    """Ask an endpoint; check that no event is an error."""
    asked = {"model": Subject(server.base_url).served_model(), **body_to(path, 4)}
    events = answers(server, path, streaming, **asked, **more)
    assert not any(event.get("error") for event in events)


ENDPOINTS = {
    "chat": CHAT,
    "completions": COMPLETIONS,
    "messages": MESSAGES,
    "responses": RESPONSES,
}
"""By the value of their label."""


@with_memory
def test_every_series_starts_at_zero(counting: Server) -> None:
    expected = {
        (metric.name, *values)
        for metric in metrics.METRICS
        for values in metrics.label_values(metric)
    }
    found = series(counting)
    assert found.keys() == expected
    assert found.pop((metrics.MEMORY_LIMIT,)) == 1_000_000
    assert "# HELP agentcore_traced_answers_total Finished answers" in scrape(counting)


def test_traced_answers_are_counted_by_endpoint_and_mode(
    counting: Server, release: str
) -> None:
    found = [name for name, path in ENDPOINTS.items() if is_traced(path, release)]
    keys = itertools.product([metrics.TRACED_ANSWERS], found, ["streamed", "whole"])
    with counted(counting, dict.fromkeys(keys, 3)):
        for name, streaming in itertools.product(found, (False, True)):
            # Connections are not reused, so that both workers answer.
            for flag in (True, True, True, False):
                path = ENDPOINTS[name]
                answered(counting, path, streaming, return_token_ids=flag)


@with_memory
def test_prefixes_and_misses_are_counted_by_source_and_reason(counting: Server) -> None:
    first = take_turn(counting, CHAT, [USER])
    [message] = first.said
    ids = {"prompt_token_ids": first.prompt, "token_ids": first.completion}
    with_ids = {**message, **ids}
    turns = [USER, message, USER]
    before = series(counting)
    expected = {
        (metrics.PREFIX_TURNS, "server", "missed"): 2,
        (metrics.PREFIX_TURNS, "request", "refused"): 1,
        (metrics.PREFIX_TURNS, "message", "refused"): 1,
        (metrics.REFUSED_PROMPTS, "prefix"): 2,
        (metrics.MEMORY_MISSES, "system"): 1,
        (metrics.MEMORY_MISSES, "message"): 1,
        (metrics.TRACED_ANSWERS, "chat", "whole"): 5,
    }
    required: dict[str, Any] = {"required_prefix_token_ids": first.ids}
    with counted(counting, expected) as wanted:
        for source, messages, more in (
            ("request", turns, required),
            ("message", [USER, with_ids, USER], {}),
            ("server", turns, {}),
        ):
            prefix = take_turn(counting, CHAT, messages, **more).prefix
            assert prefix and prefix["source"] == source
            wanted[metrics.PREFIX_TURNS, source, "continued"] += 1
            wanted[metrics.REQUIRED_TOKENS, source] += prefix["required"]
            wanted[metrics.KEPT_TOKENS, source] += prefix["kept"]
            wanted[metrics.MATCHED_TOKENS, source] += prefix["template_matched"]
        other = {"role": "user", "content": "Say something else."}
        for messages, reason in (
            ([{"role": "system", "content": "Be brief."}, *turns], "system"),
            ([other, message, USER], "message 0"),
        ):
            assert take_turn(counting, CHAT, messages).missed == reason
        for bad in (
            {"messages": turns, "required_prefix_token_ids": [-1]},
            {"messages": [USER, {**with_ids, "token_ids": [448]}, USER]},
        ):
            assert send(counting, CHAT, **bad).status_code == 400
    after = series(counting)
    # The memory has the first answer already; it keeps the same turn only once.
    entries = (metrics.MEMORY_ENTRIES,)
    assert before[entries] >= 1 and after[entries] - before[entries] >= 3
    n_bytes = (metrics.MEMORY_BYTES,)
    assert before[n_bytes] < after[n_bytes] <= 1_000_000


BAD: dict[str, tuple[str, dict[str, Any]]] = {
    "vocabulary": (CHAT, {"messages": [USER], "input_ids": [448], "stream": True}),
    "empty": (CHAT, {"messages": [USER], "input_ids": []}),
    "type": (CHAT, {"messages": [USER], "input_ids": ["7"]}),
    "length": ("/generate", {"input_ids": [7] * 40_000}),
}


def test_refused_prompts_are_counted_by_reason(counting: Server) -> None:
    with counted(counting, {(metrics.REFUSED_PROMPTS, reason): 1 for reason in BAD}):
        for reason, (path, asked) in BAD.items():
            assert send(counting, path, **asked).status_code == 400, reason


@pytest.mark.usefixtures("slow_engine")
def test_updates_and_aborts_are_counted(counting: Server) -> None:
    server = counting
    expected = {
        (metrics.WEIGHT_UPDATES, "disk", "done"): 1,
        (metrics.WEIGHT_UPDATES, "disk", "failed"): 1,
        (metrics.MIXED_REQUESTS,): 2,
        (metrics.ABORTED_REQUESTS, "asked"): 1,
        (metrics.ABORTED_REQUESTS, "rejected"): 1,
        (metrics.TRACED_ANSWERS, "chat", "whole"): 3,
    }

    def update(path: Path | str) -> requests.Response:
        return send(server, "/update_weights_from_disk", model_path=str(path))

    with counted(server, expected), ThreadPoolExecutor(3) as pool:
        rids = [uuid.uuid4().hex for _ in range(3)]
        aborted, *mixed = [
            pool.submit(client.ask, server.base_url, **LONG, rid=rid) for rid in rids
        ]
        wait_until_held(server, *rids)
        send(server, "/abort_request", rid=rids[0]).raise_for_status()
        assert aborted.result().completions[0].finish_reason == "abort"
        # The weights stay the same; the tokens after it have another version.
        name = {"new_version": uuid.uuid4().hex, "abort_all_requests": False}
        send(server, "/update_weight_version", **name).raise_for_status()
        for one in mixed:
            assert one.result().completions[0].finish_reason == "length"
        update(server.options.model).raise_for_status()
        assert update("/no/such/folder").status_code == 400
        no_grammar = {"text": "Once", "sampling_params": {"json_schema": "{"}}
        assert send(server, "/generate", **no_grammar).status_code == 400


@in_one_mode
def test_without_the_flag_there_are_no_metrics(server: Server) -> None:
    answered(server, CHAT, False)
    assert requests.get(f"{server.base_url}/metrics", timeout=30).status_code == 404
