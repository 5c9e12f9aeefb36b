"""Replies of the nodes of a Ray cluster, valid and not."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from agentcore_patches import api, cluster
from agentcore_patches.cluster import driver
from agentcore_patches.cluster.results import NodeResult, RayNode
from agentcore_patches.results import ApplyResult

NODES = [RayNode(name * 8, "127.0.0.1", "here") for name in "abc"]


def answer_of(package: Path) -> str:
    target: dict[str, Any] = {"sglang_dir": str(package), "python": None}
    options = {"extras": ["beta"], "lock_timeout": 1.0}
    return driver.run_on_node("apply", {**target, **options})


def test_patches_reverted_right_after_apply_are_an_error(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply = api.apply

    def apply_and_lose(**options: Any) -> ApplyResult:
        result = apply(**options)
        api.revert(sglang_dir=package)
        return result

    monkeypatch.setattr(api, "apply", apply_and_lose)
    answer = json.loads(answer_of(package))
    assert answer["applied"]["changed"]
    assert answer["error"].startswith("The sources were changed again right after")


def malformed(whole: str) -> Iterator[Any]:
    yield from ("", "5", "[]", "{", "[" * 100_000, None, 5, "\ud800")
    spoil: tuple[Callable[[Any], object], ...] = (
        lambda d: d.pop("status"),
        lambda d: d["status"]["install"].update(package=5),
        lambda d: d["status"].update(state="well"),
        lambda d: d.update(error="\x1b[31m"),
    )
    for change in spoil:
        document = json.loads(whole)
        change(document)
        yield json.dumps(document)


def driven_by(
    monkeypatch: pytest.MonkeyPatch, messages: list[dict[str, Any]]
) -> list[NodeResult]:
    """Return the results made from a driver's messages."""

    @contextmanager
    def answering() -> Iterator[tuple[Connection, Callable[[], str]]]:
        receiver, sender = Pipe()
        for message in messages:
            sender.send_bytes(json.dumps(message).encode())
        yield receiver, lambda: "the last line"
        sender.close()

    monkeypatch.setattr(cluster, "_driver", answering)
    monkeypatch.setattr(cluster, "_checked", lambda address: address)
    return list(cluster.status_on_ray("auto", timeout=1))


def test_an_invalid_reply_does_not_affect_other_nodes(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = answer_of(package)
    nodes = {"nodes": [node.__dict__ for node in NODES]}
    for bad in malformed(good):
        first, second, third = driven_by(
            monkeypatch,
            [
                nodes,
                {"node_id": "aaaaaaaa", "answer": bad},
                {"node_id": "unknown", "answer": good},
                {"node_id": "bbbbbbbb", "error": "Ray did not finish its task."},
                {"node_id": "cccccccc", "answer": good},
                {},
            ],
        )
        assert first.status is None
        assert str(first.error).startswith(
            "The node's reply is not a valid agentcore-patch result."
        ), bad
        assert second.error == "Ray did not finish its task."
        assert third.error is None and third.complete


def test_the_error_is_the_last_line_of_a_ray_traceback() -> None:
    told = (
        "Initialization failure from server:\nTraceback (most recent call last):\n"
        '  File "proxier.py", line 772, in Datapath\n    raise RuntimeError(\n'
        "RuntimeError: Starting Ray client server failed. See ray_client.err.\n\n"
    )
    assert driver.one_line(told).startswith("RuntimeError: Starting Ray client")
