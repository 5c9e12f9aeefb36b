"""Checks of many streams at once, and of streams that end early."""

from __future__ import annotations

import itertools
import uuid
from contextlib import closing

from agentcore_verify import client
from agentcore_verify.checks.registry import check
from agentcore_verify.client import Json
from agentcore_verify.invariants import (
    assert_first,
    assert_prefix,
    assert_same,
    assert_whole,
)
from agentcore_verify.parallel import in_parallel
from agentcore_verify.results import Failed, NotExercised
from agentcore_verify.subject import ENDLESS, INTERRUPTION_ATTEMPTS, Exchange, Subject

N_STREAMS = 24

REQUESTS = (
    ("plain", False),
    ("emoji", False),
    ("cjk", False),
    ("long", False),
    ("second_turn_ada", False),
    ("second_turn_bob", False),
    ("tool", True),
    ("text_then_tool", True),
)


@check(9, through_router=True)
def concurrency(subject: Subject) -> str:
    """Each of 24 concurrent streams gets the token IDs and logprobs of its own answer.

    Under load the engine's outputs queue up. Each stream still has the IDs of its own
    prompt, and IDs that decode to its own text, none lost. If not, rollouts are mixed
    up or incomplete, and only under load.
    """
    requests = [
        (question, tools)
        for question, tools in REQUESTS
        if subject.is_patched or not tools
    ]
    alone = [subject.reference(question, tools=tools) for question, tools in requests]

    def stream(number: int) -> Exchange:
        question, tools = requests[number % len(requests)]
        return subject.stream(question, tools=tools, logprobs=True)

    n_other = 0
    for number, reply in enumerate(in_parallel(stream, range(N_STREAMS))):
        expected = alone[number % len(requests)]
        if reply.answer.prompt_token_ids != expected.answer.prompt_token_ids:
            raise Failed(
                f"{reply.where}, one of {N_STREAMS} streams: prompt_token_ids are those "
                "of another request."
            )
        if reply.completions[0].content == expected.completions[0].content:
            assert_same(subject, expected, reply)
        assert_whole(subject, reply)
        n_other += reply.ids() != expected.ids()
    if n_other:
        # Rounding differs between batch sizes, so greedy decoding may differ too.
        return f"{N_STREAMS} streams; {n_other} answered differently than alone"
    return f"{N_STREAMS} streams, each with the same IDs as alone"


@check(10)
def interruption(subject: Subject) -> str:
    """After a disconnect or an abort, token IDs are right and the server keeps running.

    An aborted stream has the first IDs of its answer, none repeated and none lost.
    After a client has disconnected the next request gets its own answer. If not, one
    interrupted rollout spoils another one, or its own last tokens are wrong.
    """
    n_early = _disconnect(subject)
    _assert_serves_on(subject)
    if subject.is_routed or not subject.is_patched:  # No known endpoint aborts.
        if not n_early:
            raise NotExercised("No token or all had arrived before the disconnect.")
        return f"disconnected after {n_early} tokens"
    n_ids = _assert_aborted(subject)
    _assert_serves_on(subject)
    return f"disconnected after {n_early} tokens; aborted after {n_ids} tokens"


def _disconnect(subject: Subject) -> int:
    """Leave a stream early; count its tokens, which are the first of the whole answer.

    0 if no token or all of them had arrived.
    """
    body = subject.body("long", stream=True)
    events = client.chat_stream(subject.base_url, api_key=subject.api_key, **body)
    with subject.asking("streaming 'long'"), closing(events):
        seen = [
            choice
            for event in itertools.islice(events, 8)
            for choice in event["choices"]
        ]
    ids = [one for choice in seen for one in subject.profile.tokens_of(choice) or ()]
    whole = subject.reference("long")
    known = whole.ids()
    assert_first(subject, "streaming 'long', disconnected", ids, whole)
    return len(ids) if len(ids) < len(known) else 0


def _assert_serves_on(subject: Subject) -> None:
    reply = subject.stream("plain")
    assert_same(subject, subject.reference("plain"), reply)
    assert_whole(subject, reply)


def _assert_aborted(subject: Subject) -> int:
    """Check that an aborted stream has the first IDs of the answer; return their number."""
    for _ in range(INTERRUPTION_ATTEMPTS):
        reply = _aborted(subject)
        assert_prefix(subject, "long", reply)
        assert_whole(subject, reply)
        if reply.completions[0].finish_reason == "abort":
            return len(reply.ids())
    raise NotExercised("The abort reached the engine only after the whole answer.")


def _aborted(subject: Subject) -> Exchange:
    where = "streaming 'long', aborted"
    body = subject.body(
        "long", stream=True, rid=uuid.uuid4().hex, logprobs=True, **ENDLESS
    )
    received = itertools.count(1)

    def abort(event: Json) -> None:
        # Of several tokenizer workers, only the one with the request can abort it.
        if 3 <= next(received) < 40:
            subject.post("/abort_request", {"rid": body["rid"]}).close()

    return subject.send(body, where, abort)
