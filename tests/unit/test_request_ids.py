"""Request IDs: reserved during a request, and unique in the engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from agentcore_patches.landing.http import exchanges, request_ids


class Manager:
    """A tokenizer manager that records sent requests and aborts."""

    def __init__(self) -> None:
        self.rid_to_state: dict[str, Any] = {}
        self.server_args = SimpleNamespace(language_only=False)
        self.aborted: list[str] = []

    def abort_request(self, rid: str) -> None:
        self.aborted.append(rid)

    def send(self, rid: str) -> str:
        """Send a request; return its engine ID."""
        manager: Any = self
        state: Any = SimpleNamespace()
        self.rid_to_state[rid] = state
        request_ids.record(manager, state, rid)
        engine_rid = exchanges.run_of(state).engine_rid
        assert engine_rid is not None
        return engine_rid


@dataclass
class Request:
    """A normalized request; a list of IDs makes it a batch."""

    rid: Any
    stream: bool = False
    n_closed: int = 0

    @property
    def is_single(self) -> bool:
        return not isinstance(self.rid, list)

    def normalize_batch_and_arguments(self) -> None:
        pass

    def regenerate_rid(self) -> None:
        self.rid = "random"


def reserved(manager: Any, rid: Any, **more: Any) -> Any:
    obj: Any = Request(rid, **more)
    request_ids.reserve(manager, obj)
    return obj


def deliver(manager: Any, *engine_rids: str) -> list[str]:
    output: Any = SimpleNamespace(rids=[*engine_rids])
    request_ids.from_engine(manager, output)
    restored: list[str] = output.rids
    return restored


@request_ids.reserving
async def answers(manager: Any, obj: Any, request: Any) -> AsyncIterator[int]:
    obj.normalize_batch_and_arguments()
    request_ids.reserve(manager, obj)
    try:
        for number in range(3 if obj.stream else 1):
            yield number
    finally:
        obj.n_closed += 1


@pytest.mark.parametrize(
    ("rid", "error"),
    [
        ("a", "Duplicate request ID detected: a"),
        (["x", "a"], "Duplicate request ID detected: a"),
        (["x", "y", "x"], r"within the request: \['x'\]"),
        (["x", ""], "not empty"),
        (["x", 1], "must be a string"),
        ({}, "single prompt must be a string, not a dict"),
    ],
)
def test_a_request_with_an_invalid_id_is_refused_and_reserves_nothing(
    rid: Any, error: str
) -> None:
    manager: Any = Manager()
    reserved(manager, "a")
    with pytest.raises(ValueError, match=error):
        reserved(manager, rid)
    asked: Any = Request(rid)
    assert request_ids.check(manager, asked) is not None
    assert vars(manager)["reserved_rids"].keys() == {"a"}


def test_a_request_still_in_the_engine_is_in_use() -> None:
    manager: Any = Manager()
    manager.send("a")
    with pytest.raises(ValueError, match="Duplicate"):
        reserved(manager, "a")
    # Not a duplicate of itself, and an empty ID is replaced.
    assert request_ids.check(manager, reserved(manager, "b")) is None
    assert reserved(manager, "").rid == "random"
    without_id: Any = SimpleNamespace(text="a")
    assert request_ids.check(manager, without_id) is None


class CountedId(str):
    """An ID that counts how often IDs are compared."""

    comparisons = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        CountedId.comparisons += 1
        return str.__eq__(self, other)


def test_repeated_ids_are_found_in_linear_time() -> None:
    rids = [CountedId(n % 4_000) for n in range(8_000)]
    obj: Any = Request(rids)
    manager: Any = Manager()
    assert "within the request" in (request_ids.check(manager, obj) or "")
    assert CountedId.comparisons < 10 * len(rids)


def test_an_id_is_in_use_until_the_response_arrives_or_the_stream_ends() -> None:
    async def ask() -> None:
        manager: Any = Manager()
        for _ in range(2):
            # Like SGLang, which may keep the generator for any time.
            responses = answers(manager, Request("a"), None)
            assert await anext(responses) == 0
            assert vars(manager)["reserved_rids"] == {}
            await responses.aclose()
        obj = Request(["a", "b"], stream=True)
        assert [number async for number in answers(manager, obj, None)] == [0, 1, 2]
        left = answers(manager, obj, None)
        await anext(left)
        assert vars(manager)["reserved_rids"].keys() == {"a", "b"}
        await left.aclose()
        assert obj.n_closed == 2
        assert vars(manager)["reserved_rids"] == {}

    asyncio.run(ask())


def test_a_late_output_does_not_reach_another_request() -> None:
    manager: Any = Manager()
    reserved(manager, "a")
    old = manager.send("a")
    assert deliver(manager, old) == ["a"]
    del manager.rid_to_state["a"]
    vars(manager)["reserved_rids"].clear()
    reserved(manager, "a")
    new = manager.send("a")
    late, known, plain = deliver(manager, old, new, "other")
    assert late not in manager.rid_to_state
    assert (known, plain) == ("a", "other")


def test_a_disconnect_aborts_only_its_own_request() -> None:
    manager: Any = Manager()
    old = reserved(manager, "a")
    manager.send("a")
    request_ids.abort_own(manager, "a", old)
    assert manager.aborted == ["a"]
    vars(manager)["reserved_rids"].clear()
    del manager.rid_to_state["a"]
    request_ids.abort_own(manager, "a", old)
    reserved(manager, "a")
    manager.send("a")
    request_ids.abort_own(manager, "a", old)
    assert manager.aborted == ["a"]
