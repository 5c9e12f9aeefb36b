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
from tests.helpers.endpoints import CHAT, COMPLETIONS, RESPONSES, VLLM_GENERATE, send
from tests.helpers.servers import held_requests

Json = dict[str, Any]

# Takes more than the 2 s after which SGLang aborts the request of a client that
# disconnected, while the engine is slow.
LONG = Case("long", options={"max_tokens": 160})
ENDLESS = {"ignore_eos": True, "max_tokens": 3000}
OTHER = CASES["emoji"]

GENERATE = "/generate"
PATHS = [CHAT, COMPLETIONS, GENERATE]
TEXT = line("long").messages[0]["content"]
TWICE = "Duplicate request ID"


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


def body_of(path: str, **more: Any) -> Json:
    """Return a request for 40 tokens after the prompt of the long case."""
    if path == GENERATE:
        return {
            "text": TEXT,
            "sampling_params": {"max_new_tokens": 40, "temperature": 0},
            **more,
        }
    prompt = {"prompt": TEXT} if path == COMPLETIONS else LONG.body()
    return {**prompt, "model": "default", "max_tokens": 40, "temperature": 0, **more}


def assert_refused(answer: requests.Response) -> None:
    assert answer.status_code == 400, answer.text
    assert TWICE in answer.text


def ask_until_accepted(server: Server, case: Case, **more: Any) -> Answer:
    """Send a request, again and again while its ID is in use; return the answer."""
    deadline = time.monotonic() + 20
    while True:
        try:
            return ask(server, case, **more)
        except HttpError as error:
            assert error.status == 400 and TWICE in error.body
            assert time.monotonic() < deadline, "the ID was never free"
            time.sleep(0.02)


@one_worker
@pytest.mark.usefixtures("slow_engine")
def test_a_request_with_an_id_in_use_is_refused(
    server: Server, quiet: Callable[[Case], Answer], release: str
) -> None:
    model = Subject(server.base_url).served_model()
    with (
        in_progress(server, "turn-7") as whole,
        in_progress(server, "turn-8", stream=True) as streamed,
    ):
        for rid in ("turn-7", "turn-8"):
            for also in (False, True):
                for path in PATHS:
                    body = body_of(path, rid=rid, stream=also)
                    assert_refused(send(server, path, **body))
                more = {"request_id": rid, "stream": also}
                if is_between(release, "0.5.14", ""):
                    asked = {"model": model, "input": TEXT, **more}
                    assert_refused(send(server, RESPONSES, **asked))
                asked = {"token_ids": [5], "sampling_params": {}, **more}
                assert_refused(send(server, VLLM_GENERATE, **asked))
    for first in (whole, streamed):
        assert_own(first.result(), quiet(LONG))
    assert_own(ask(server, OTHER, rid="turn-7"), quiet(OTHER))


@in_modes("two-workers")
@pytest.mark.usefixtures("slow_engine")
def test_two_workers_never_mix_requests_with_one_id(
    server: Server, quiet: Callable[[Case], Answer]
) -> None:
    def ask_once(number: int) -> Answer | None:
        try:
            return ask(server, OTHER, rid="shared", stream=bool(number % 2))
        except HttpError as error:
            assert error.status == 400 and TWICE in error.body
            return None

    with in_progress(server, "shared", stream=True) as first:
        with ThreadPoolExecutor(8) as pool:
            # The kernel spreads the connections of the requests over the workers.
            answers = [*pool.map(ask_once, range(24))]
        # The worker of the first request refuses, the other one serves.
        assert None in answers
        for answer in filter(None, answers):
            assert_own(answer, quiet(OTHER))
    assert_own(first.result(), quiet(LONG))
    assert_own(ask(server, OTHER, rid="shared"), quiet(OTHER))


@one_worker
@pytest.mark.usefixtures("slow_engine")
def test_a_batch_with_an_id_in_use_runs_nothing(
    server: Server, quiet: Callable[[Case], Answer]
) -> None:
    post = partial(send, server, GENERATE)
    params = body_of(GENERATE)["sampling_params"]
    batch = {"text": [TEXT, TEXT], "sampling_params": params}
    assert_refused(post(**batch, rid=["same", "same"]))
    with in_progress(server, "one_1") as first:
        for stream in (False, True):
            for rids in (["free", "one_1"], "one"):
                assert_refused(post(**batch, rid=rids, stream=stream))
        for rid in ("free", "one_0", "same"):
            assert post(**body_of(GENERATE, rid=rid)).status_code == 200
    assert_own(first.result(), quiet(LONG))
    assert held_requests(server) == []


@one_worker
@pytest.mark.usefixtures("slow_engine")
def test_the_id_of_several_samples_is_in_use_until_all_finish(server: Server) -> None:
    body = {**body_of(CHAT, rid="samples", n=2), "max_tokens": 100}
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(send, server, CHAT, **body)
        wait_for_steps(server, 5)
        for stream in (False, True):
            assert_refused(send(server, CHAT, **body, stream=stream))
    assert len(first.result().json()["choices"]) == 2
    assert send(server, CHAT, **body, max_completion_tokens=5).status_code == 200


@each_number
@pytest.mark.usefixtures("slow_engine")
def test_an_id_of_a_disconnected_client_never_mixes_two_requests(
    server: Server, quiet: Callable[[Case], Answer]
) -> None:
    body = LONG.body(stream=True, rid="left-1", **ENDLESS)
    with closing(client.chat_stream(server.base_url, **body)) as stream:
        for _ in range(5):
            next(stream)
    with pytest.raises(requests.Timeout):
        body = {**LONG.body(rid="left-2", **ENDLESS), "model": "default"}
        requests.post(server.base_url + CHAT, json=body, timeout=0.5)
    with ThreadPoolExecutor(2) as pool:
        again = [
            pool.submit(ask_until_accepted, server, LONG, rid=rid, stream=True)
            for rid in ("left-1", "left-2")
        ]
    for next_one in again:
        assert_own(next_one.result(), quiet(LONG))
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
    post = partial(send, server, GENERATE)
    session = send(server, "/open_session", capacity_of_str_len=1000).json()
    params = {"max_new_tokens": 5, "temperature": 0, "ignore_eos": True}
    turns = []
    for rid, before in (("a", None), ("ab", "a"), ("b", "a"), ("c", "ab")):
        answer = post(
            input_ids=[5, 6, 7],
            rid=f"{session}-{rid}",
            sampling_params=params,
            session_params={"id": session, "rid": before and f"{session}-{before}"},
        ).json()
        assert answer["meta_info"]["id"] == f"{session}-{rid}"
        turns.append(answer["meta_info"]["prompt_tokens"])
    assert turns == [3, 11, 11, 19]
    send(server, "/close_session", session_id=session)


@one_worker
@pytest.mark.parametrize("path", PATHS)
def test_an_unusual_id_is_refused_or_served(server: Server, path: str) -> None:
    # An empty ID is never in use.
    served: list[str | None] = [None, *[""] * 4, "a\x1fb", "ü" * 300]
    with ThreadPoolExecutor(len(served)) as pool:
        bodies = [body_of(path, rid=rid) for rid in served]
        answers = pool.map(lambda body: send(server, path, **body), bodies)
    for rid, answer in zip(served, answers, strict=True):
        assert answer.status_code == 200, answer.text
        if rid:
            found = answer.json()
            assert found.get("id", found.get("meta_info", {}).get("id")) == rid
    odd: list[Any] = [7, ["listed"], [], {"a": 1}]
    for wrong in odd:
        for stream in (False, True):
            answer = send(server, path, **body_of(path, rid=wrong, stream=stream))
            assert answer.status_code in (400, 422), answer.text
    assert held_requests(server) == []
