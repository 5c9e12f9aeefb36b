"""Replies of the nodes of a Ray cluster, valid and not."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from agentcore_patches import api, cluster
from agentcore_patches.cluster import driver
from agentcore_patches.cluster.results import NodeAnswer, NodeResult, RayNode
from agentcore_patches.disk.typed_json import parse, typed
from agentcore_patches.errors import AccessError, UsageError
from agentcore_patches.results import ApplyResult

NODES = [RayNode(name * 8, "127.0.0.1", "here") for name in "abc"]


def answer_of(package: Path, action: driver.Action = "apply") -> str:
    target: dict[str, Any] = {"sglang_dir": str(package), "python": None}
    more = {"extras": ["beta"], "lock_timeout": 1.0} if action == "apply" else {}
    return driver.run_on_node(action, {**target, **more})


def received(package: Path, action: driver.Action = "apply") -> NodeAnswer:
    return typed(NodeAnswer, parse(answer_of(package, action).encode()))


def test_a_reply_arrives_unchanged(package: Path) -> None:
    answer = received(package)

    assert (answer.error, answer.python) == (None, sys.executable)
    assert answer.applied is not None and answer.applied.changed
    assert answer.applied.install.package == package
    assert answer.before is not None and not answer.before.complete
    assert answer.status is not None and answer.status.complete
    assert received(package, "status").status == answer.status


def test_a_node_error_is_one_line(package: Path) -> None:
    (package / "srt/serving.py").write_text("def reply(): ...\n")
    answer = received(package)
    assert answer.applied is None and answer.status is not None
    assert answer.error is not None and "`answer`" in answer.error


def test_patches_reverted_right_after_apply_are_an_error(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply = api.apply

    def apply_and_lose(**options: Any) -> ApplyResult:
        result = apply(**options)
        api.revert(sglang_dir=package)
        return result

    monkeypatch.setattr(api, "apply", apply_and_lose)
    answer = received(package)
    assert answer.applied is not None and answer.applied.changed
    assert answer.error is not None
    assert answer.error.startswith("The sources were changed again right after")


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


def test_a_driver_without_a_cluster_reports_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    message = {"error": "no cluster", "hint": "try"}
    with pytest.raises(UsageError, match="no cluster"):
        driven_by(monkeypatch, [{**message, "usage": True}])
    with pytest.raises(AccessError, match="no cluster"):
        driven_by(monkeypatch, [{**message, "usage": False}])
