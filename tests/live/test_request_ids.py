"""Request IDs chosen by clients: requests never share a state, stream or token."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import Any

import pytest
import requests

from agentcore_patches.patches.releases import is_between
from agentcore_verify import client
from agentcore_verify.client import Answer, HttpError
from agentcore_verify.scripted_model import line
from agentcore_verify.server import Server
from agentcore_verify.subject import Subject
from tests.helpers.asking import (
    CASES,
    Case,
    ask,
    assert_equal,
    assert_whole,
    wait_for_steps,
)
from tests.helpers.endpoints import (
    CHAT,
    COMPLETIONS,
    RESPONSES,
    VLLM_GENERATE,
    Json,
    body_to,
    send,
)
from tests.helpers.servers import held_requests

# Takes more than the 2 s after which SGLang aborts the request of a client that
# disconnected, while the engine is slow.
LONG = Case("long", options={"max_tokens": 160})
ENDLESS = {"ignore_eos": True, "max_tokens": 3000}
OTHER = CASES["emoji"]

GENERATE = "/generate"
TEXT = line("long").messages[0]["content"]
TWICE = "Duplicate request ID"
SAMPLING = {"sampling_params": {"max_new_tokens": 40, "temperature": 0}}


def in_modes(*modes: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("mode", modes, indirect=True, scope="session")


one_worker = in_modes("default")
each_number = in_modes("default", "two-workers")


@pytest.fixture(scope="module")
def quiet(server: Server) -> Callable[[Case], Answer]:
    """Answers of an idle server to the cases, including logprobs."""
    answers = {case.line: ask(server, case) for case in (LONG, OTHER)}
    return lambda case: answers[case.line]


def assert_own(answer: Answer, quiet: Answer) -> None:
    """Check that an answer is complete and has the tokens of an idle server."""
    assert_whole(answer)
    assert_equal(answer, quiet)


@contextlib.contextmanager
def in_progress(server: Server, rid: str, **more: Any) -> Iterator[Future[Answer]]:
    """Run a long request under this ID; it is generating when the block starts."""
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(ask, server, LONG, rid=rid, **more)
        wait_for_steps(server, 5)
        yield answer


def bodies(rid: Any, release: str, model: str) -> Iterator[tuple[str, Json]]:
    """Yield a request with this ID for each endpoint but chat."""
    yield GENERATE, {"text": TEXT, "rid": rid, **SAMPLING}
    yield COMPLETIONS, {**body_to(COMPLETIONS, 40), "rid": rid}
    yield VLLM_GENERATE, {**body_to(VLLM_GENERATE, 40), "request_id": rid}
    if is_between(release, "0.5.14", ""):
        yield RESPONSES, {**body_to(RESPONSES, 40), "model": model, "request_id": rid}


@one_worker
@pytest.mark.usefixtures("slow_engine")
def test_an_id_in_use_is_refused_and_runs_nothing(
    server: Server, quiet: Callable[[Case], Answer], release: str
) -> None:
    model = Subject(server.base_url).served_model()
    batch = {"text": [TEXT, TEXT], **SAMPLING}
    longest = {"max_tokens": 700}
    alone = ask(server, LONG, **longest)
    with (
        in_progress(server, "whole_1", **longest) as whole,
        in_progress(server, "streamed", stream=True, **longest) as streamed,
        # SGLang drops the ID of such a request before its samples are generated.
        in_progress(server, "samples", n=2, **longest) as samples,
    ):
        refused = [
            (CHAT, OTHER.body(rid=rid, n=n))
            for rid, n in (("whole_1", 1), ("streamed", 1), ("samples", 2))
        ]
        refused += bodies("whole_1", release, model)
        # A batch with one ID numbers its prompts.
        for rids in (["same", "same"], ["free", "whole_1"], "whole"):
            refused.append((GENERATE, {**batch, "rid": rids}))
        for path, body in refused:
            for stream in (False, True):
                answer = send(server, path, **body, stream=stream)
                assert answer.status_code == 400, (path, body, answer.text)
                assert TWICE in answer.text
        for rid in ("free", "whole_0", "same"):
            body = {"text": TEXT, "rid": rid, **SAMPLING}
            assert send(server, GENERATE, **body).status_code == 200
    for first in (whole, streamed):
        assert_own(first.result(), alone)
    assert_whole(samples.result())
    assert len(samples.result().completions) == 2
    for rid in ("whole_1", "samples"):
        assert_own(ask(server, OTHER, rid=rid), quiet(OTHER))
    assert held_requests(server) == []


@in_modes("two-workers")
@pytest.mark.usefixtures("slow_engine")
def test_two_workers_never_mix_requests_with_one_id(
    server: Server, quiet: Callable[[Case], Answer]
) -> None:
    with in_progress(server, "shared", stream=True) as first:
        with ThreadPoolExecutor(8) as pool:
            # The kernel spreads the connections of the requests over the workers.
            asked = [
                pool.submit(ask_once, server, OTHER, rid="shared", stream=stream)
                for stream in (False, True) * 12
            ]
            answers = [one.result() for one in asked]
        # The worker of the first request refuses, the other one serves.
        assert None in answers
        for answer in filter(None, answers):
            assert_own(answer, quiet(OTHER))
    assert_own(first.result(), quiet(LONG))
    assert_own(ask(server, OTHER, rid="shared"), quiet(OTHER))


def ask_once(server: Server, case: Case, **more: Any) -> Answer | None:
    """Return the answer to a request, or None if its ID is in use."""
    try:
        return ask(server, case, **more)
    except HttpError as error:
        assert error.status == 400 and TWICE in error.body
        return None


def ask_when_free(server: Server, rid: str) -> Answer:
    for _ in range(1000):
        if answer := ask_once(server, LONG, rid=rid, stream=True):
            return answer
        time.sleep(0.02)
    raise AssertionError("the ID was never free")


@each_number
@pytest.mark.usefixtures("slow_engine")
def test_an_id_of_a_disconnected_client_never_mixes_two_requests(
    server: Server, quiet: Callable[[Case], Answer]
) -> None:
    body = LONG.body(stream=True, rid="left\x1f1", **ENDLESS)
    with closing(client.chat_stream(server.base_url, **body)) as stream:
        for _ in range(5):
            next(stream)
    with pytest.raises(requests.Timeout):
        body = {**LONG.body(rid="left-2", **ENDLESS), "model": "default"}
        requests.post(server.base_url + CHAT, json=body, timeout=0.5)
    with ThreadPoolExecutor(2) as pool:
        again = pool.map(partial(ask_when_free, server), ("left\x1f1", "left-2"))
    for answer in again:
        assert_own(answer, quiet(LONG))
    assert held_requests(server) == []


@each_number
@pytest.mark.usefixtures("slow_engine")
def test_an_abort_ends_only_its_own_request(
    server: Server, quiet: Callable[[Case], Answer]
) -> None:
    left = LONG.body(stream=True, rid="2", **ENDLESS)
    with (
        in_progress(server, "1", stream=True, **ENDLESS) as aborted,
        closing(client.chat_stream(server.base_url, **left)) as stream,
        in_progress(server, "10") as other,
        in_progress(server, "20", stream=True) as third,
    ):
        next(stream)
        stream.close()
        send(server, "/abort_request", rid="1").raise_for_status()
        send(server, "/abort_request", rid="").raise_for_status()
    assert aborted.result().completions[0].finish_reason == "abort"
    for answer in (other, third):
        assert_own(answer.result(), quiet(LONG))
    assert held_requests(server) == []


@one_worker
def test_a_session_finds_its_turns_by_their_ids(server: Server) -> None:
    session = send(server, "/open_session", capacity_of_str_len=1000).json()
    params = {"max_new_tokens": 5, "temperature": 0, "ignore_eos": True}
    n_prompts = []
    for rid, before in (("a", None), ("ab", "a"), ("b", "a"), ("c", "ab")):
        answer = send(
            server,
            GENERATE,
            input_ids=[5, 6, 7],
            rid=f"{session}-{rid}",
            sampling_params=params,
            session_params={"id": session, "rid": before and f"{session}-{before}"},
        ).json()
        assert answer["meta_info"]["id"] == f"{session}-{rid}"
        n_prompts.append(answer["meta_info"]["prompt_tokens"])
    assert n_prompts == [3, 11, 11, 19]
    send(server, "/close_session", session_id=session)
