"""Many streams at once, disconnects, aborts: no ID is lost or repeated."""

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
    assert_equal,
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
def test_a_client_that_disconnects_does_not_disturb_others(server: Server) -> None:
    stream = client.chat_stream(server.base_url, **ENDLESS.body(stream=True))
    for _ in range(3):
        next(stream)
    other = in_background(lambda: ask(server, CASES["emoji"], stream=True))
    stream.close()
    assert_whole(other())
    assert_equal(other(), ask(server, CASES["emoji"]))


@pytest.mark.usefixtures("slow_engine")
@pytest.mark.parametrize("stream", [False, True])
def test_an_abort_loses_and_repeats_nothing(server: Server, stream: bool) -> None:
    rid = f"aborted-{stream}"
    flat = {"return_token_logprobs": True}
    answer = in_background(
        partial(ask, server, ENDLESS, rid=rid, stream=stream, **flat)
    )
    wait_until_held(server, rid)
    wait_for_steps(server, 20)
    abort(server, rid)
    assert_whole(answer())
    for piece in answer().completions[0].pieces:
        values = [entry["logprob"] for entry in piece.logprobs or ()]
        assert piece.raw.get("token_logprobs", []) == values
    [choice] = answer().completions
    assert choice.finish_reason == "abort"
    if not stream:
        usage = answer().usage or {}
        assert usage["prompt_tokens"] == len(answer().prompt_token_ids or ())
    wanted = ask(server, ENDLESS, max_tokens=len(choice.token_ids or ()))
    assert choice.token_ids == wanted.completions[0].token_ids


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
