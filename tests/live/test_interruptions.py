"""Pauses of several workers, and aborts of waiting requests.

The check `interruption` aborts running requests and leaves streams, in each mode.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import requests

from agentcore_patches.patches.releases import is_between
from agentcore_verify import client
from agentcore_verify.client import Answer
from agentcore_verify.server import Server
from tests.helpers.asking import (
    CASES,
    Case,
    ask,
    assert_whole,
    wait_for_steps,
)
from tests.helpers.endpoints import send
from tests.helpers.servers import Launch, Trees, held, held_requests
from tests.helpers.waiting import wait_until

ENDLESS = Case("long", options={"ignore_eos": True, "max_tokens": 6000})


def abort(server: Server, rid: str) -> None:
    client.post(server.base_url + "/abort_request", {"rid": rid})


def pause(server: Server, mode: str) -> requests.Response:
    return send(server, "/pause_generation", mode=mode)


def in_background(ask_it: Callable[[], Answer]) -> Callable[[], Answer]:
    """Start a request; return a function that waits for the answer."""
    pool = ThreadPoolExecutor(1)
    answer = pool.submit(ask_it)
    pool.shutdown(wait=False)
    return answer.result


def wait_until_held(server: Server, *rids: str) -> None:
    """Wait until a server has sent these requests to its engine."""
    # Each worker lists only its own requests, and any worker may answer.
    seen: set[str] = set()

    def all_seen() -> bool:
        seen.update(held(server))
        return seen.issuperset(rids)

    wait_until(all_seen)


@pytest.mark.usefixtures("slow_engine")
@pytest.mark.parametrize("mode", ["two-workers"], indirect=True, scope="session")
def test_a_pause_reaches_both_workers_or_is_refused(
    server: Server, release: str
) -> None:
    if not is_between(release, "0.5.12", ""):
        for answer in (pause(server, "in_place"), send(server, "/continue_generation")):
            assert answer.status_code == 400
            assert "--tokenizer-worker-num" in answer.json()["message"]
        assert ask(server, CASES["plain"]).completions
        return
    # Enough requests for either worker to hold one, and short enough for the
    # engine's memory to hold all: it makes others wait until one finishes.
    rids = [f"paused-{number}" for number in range(8)]
    body = {"stream": True, "max_tokens": 1500}
    running = [
        in_background(partial(ask, server, ENDLESS, rid=rid, **body)) for rid in rids
    ]
    wait_until_held(server, *rids)
    wait_for_steps(server, 20)
    assert pause(server, "in_place").status_code == 200
    assert pause(server, "abort").status_code == 200
    assert send(server, "/continue_generation").status_code == 200
    for finish in running:
        assert_whole(finish())
        assert finish().completions[0].finish_reason == "abort"
    assert ask(server, CASES["plain"]).completions


@pytest.mark.usefixtures("slow_engine")
@pytest.mark.parametrize(
    "args",
    [(), ("--stream-output", "--tokenizer-worker-num", "2")],
    ids=["default", "output, two workers"],
)
def test_an_abort_of_a_waiting_request_is_a_complete_response(
    trees: Trees, launch: Launch, args: tuple[str, ...]
) -> None:
    with launch(trees.patched, *args, "--max-running-requests", "1") as server:
        running = in_background(partial(ask, server, ENDLESS, rid="running"))
        wait_until_held(server, "running")
        for stream in (False, True):
            rid = f"waiting-{stream}"
            waiting = in_background(
                partial(ask, server, CASES["plain"], rid=rid, stream=stream)
            )
            wait_until_held(server, rid)
            abort(server, rid)
            answer = waiting()
            assert answer.prompt_positions == (0,)
            [choice] = answer.completions
            assert not choice.token_ids
            assert choice.finish_reason == "abort"
        abort(server, "running")
        assert_whole(running())
        assert held_requests(server) == []
