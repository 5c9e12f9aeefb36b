"""After a disconnect or an abort, token IDs are right and the server keeps running.

An aborted stream has the first IDs of its answer, none repeated and none lost. After a
client has disconnected the next request gets its own answer. If not, one interrupted
rollout spoils another one, or its own last tokens are wrong.
"""

from __future__ import annotations

import itertools
import uuid
from contextlib import closing

from agentcore_verify import client
from agentcore_verify.client import Json
from agentcore_verify.invariants import (
    assert_first,
    assert_prefix,
    assert_same,
    assert_whole,
)
from agentcore_verify.results import NotExercised
from agentcore_verify.subject import ENDLESS, INTERRUPTION_ATTEMPTS, Exchange, Subject

RULES = (10,)


def check(subject: Subject) -> str:
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
