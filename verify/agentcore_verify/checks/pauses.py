"""Pauses and aborts of all, streams open: every answer ends, exact or a true prefix.

Around each weight update a trainer pauses the server, in place, by retraction or by
aborting all. Answers that were paused must be those of a quiet run, with a logprob for
each token; those that were aborted must be prefixes that say so. If not, each update of
the weights leaves hanging clients or wrong samples behind.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from agentcore_verify.client import ClientError, HttpError
from agentcore_verify.differences import id_difference
from agentcore_verify.invariants import assert_same, assert_whole
from agentcore_verify.results import Failed, NotExercised, Skipped
from agentcore_verify.subject import Reply, Subject

PATCHES = ("token-ids",)

N_STREAMS = 4
HEAD_START, PAUSE = 0.15, 0.3
"""Seconds that the streams run before a pause, and that it lasts."""


def check(subject: Subject) -> str:
    if not subject.launched:
        raise Skipped("A pause would stop the requests of others on this server.")
    wanted = subject.reference("long")
    for mode in ("in_place", "retract"):
        for reply in _interrupted(subject, mode):
            assert_same(subject, wanted, reply)
            assert_whole(subject, reply)
    aborted = _interrupted(subject, "abort")
    ended = [_assert_prefix(subject, wanted, reply) for reply in aborted]
    if not any(ended):
        raise NotExercised("Every answer ended before the abort reached the engine.")
    return f"{2 * N_STREAMS} paused answers exact, {sum(ended)} aborted"


def _interrupted(subject: Subject, mode: str) -> list[Reply]:
    """The answers to several streams, during which the server is paused."""
    with ThreadPoolExecutor(N_STREAMS) as pool:
        asked = [
            pool.submit(subject.stream, "long", logprobs=True, top_logprobs=2)
            for _ in range(N_STREAMS)
        ]
        time.sleep(HEAD_START)
        with _paused(subject, mode):
            time.sleep(PAUSE)
        return [reply.result() for reply in asked]


@contextmanager
def _paused(subject: Subject, mode: str) -> Iterator[None]:
    """Pauses the server, and lets it continue whatever happens."""
    try:
        subject.post("/pause_generation", {"mode": mode})
    except HttpError as error:
        if error.status == 400:
            raise Skipped(f"The server refuses to be paused: {error.body}") from error
        raise Failed(f"/pause_generation ({mode}): {error}") from error
    except ClientError as error:
        raise Failed(f"/pause_generation ({mode}): {error}") from error
    try:
        yield
    finally:
        try:
            subject.post("/continue_generation", {})
        except ClientError as error:
            raise Failed(f"/continue_generation: {error}") from error


def _assert_prefix(subject: Subject, wanted: Reply, reply: Reply) -> bool:
    """Whether the answer was aborted: then it has the first IDs of the whole one."""
    assert_whole(subject, reply)
    [said] = reply.completions
    if said.finish_reason != "abort":
        return False
    ids = said.token_ids or ()
    if ids != wanted.ids()[: len(ids)]:
        raise Failed(
            f"{reply.where}, aborted: token_ids are not the first ones of the answer.",
            difference=id_difference(
                subject, "whole answer", wanted.ids(), "aborted answer", ids
            ),
        )
    return True
