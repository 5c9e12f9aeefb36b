"""A pause reaches each worker, and an abort reaches a request that waits."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from agentcore_patches.patches.releases import is_between
from agentcore_verify.server import Server
from tests.helpers.asking import CASES, Case, ask, assert_whole, wait_for_steps
from tests.helpers.endpoints import send
from tests.helpers.servers import MODES, Launch, Trees, held_requests, wait_until_held

ENDLESS = Case("long", options={"ignore_eos": True, "max_tokens": 6000})


@pytest.mark.usefixtures("slow_engine")
@pytest.mark.parametrize("mode", ["two-workers"], indirect=True, scope="session")
def test_a_pause_reaches_both_workers_or_is_refused(
    server: Server, release: str
) -> None:
    if not is_between(release, "0.5.12", ""):
        for path in ("/pause_generation", "/continue_generation"):
            answer = send(server, path, mode="in_place")
            assert answer.status_code == 400
            assert "--tokenizer-worker-num" in answer.json()["message"]
        assert ask(server, CASES["plain"]).completions
        return
    # Enough requests for either worker to hold one, and short enough for the
    # engine's memory to hold all: it makes others wait until one finishes.
    rids = [f"paused-{number}" for number in range(8)]
    body = {"stream": True, "max_tokens": 1500}
    with ThreadPoolExecutor(len(rids)) as pool:
        running = [pool.submit(ask, server, ENDLESS, rid=rid, **body) for rid in rids]
        wait_until_held(server, *rids)
        wait_for_steps(server, 20)
        for mode in ("in_place", "abort"):
            assert send(server, "/pause_generation", mode=mode).status_code == 200
        assert send(server, "/continue_generation").status_code == 200
        for one in running:
            assert_whole(one.result())
            assert one.result().completions[0].finish_reason == "abort"
    assert ask(server, CASES["plain"]).completions


@pytest.mark.usefixtures("slow_engine")
def test_an_abort_of_a_waiting_request_is_a_complete_response(
    trees: Trees, launch: Launch
) -> None:
    args = (*MODES["two-workers-stream-output"], "--max-running-requests", "1")
    with launch(trees.patched, *args) as server, ThreadPoolExecutor(2) as pool:
        running = pool.submit(ask, server, ENDLESS, rid="running")
        wait_until_held(server, "running")
        for stream in (False, True):
            rid = f"waiting-{stream}"
            waiting = pool.submit(ask, server, CASES["plain"], rid=rid, stream=stream)
            wait_until_held(server, rid)
            send(server, "/abort_request", rid=rid)
            answer = waiting.result()
            assert answer.prompt_positions == (0,)
            [choice] = answer.completions
            assert not choice.token_ids
            assert choice.finish_reason == "abort"
        send(server, "/abort_request", rid="running")
        assert_whole(running.result())
        assert held_requests(server) == []
