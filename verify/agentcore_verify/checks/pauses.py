"""Under pauses and aborts of all requests, every answer finishes and is exact.

Around each weight update, a trainer pauses the server: in place, by retraction, or by
aborting all requests. Paused answers must equal those of an undisturbed run, with a
logprob for each token. Aborted answers must be exact prefixes and say that they were
aborted. If not, each weight update leaves hanging clients or wrong samples behind.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from agentcore_verify.checks.registry import check
from agentcore_verify.client import HttpError
from agentcore_verify.invariants import assert_prefix, assert_same, assert_whole
from agentcore_verify.parallel import in_threads
from agentcore_verify.results import NotExercised, Skipped
from agentcore_verify.signals import unless_signalled
from agentcore_verify.subject import ENDLESS, INTERRUPTION_ATTEMPTS, Exchange, Subject

PAUSES = ("in_place", "retract")
N_STREAMS = 4
PAUSE = 0.3
"""Seconds that a pause lasts."""


@check(10)
def pauses(subject: Subject) -> str:
    if not subject.launched:
        raise Skipped("A pause would stop other clients' requests on this server.")
    n_paused = sum(_paused_answers(subject, mode) for mode in PAUSES)
    n_aborted = _aborted_answers(subject)
    return f"{n_paused} paused answers exact, {n_aborted} aborted"


def _paused_answers(subject: Subject, mode: str) -> int:
    """Count the answers that were open during a pause; raise Failed unless all match."""
    wanted = subject.reference("long")
    for _ in range(INTERRUPTION_ATTEMPTS):
        replies, n_open = _interrupted(subject, mode)
        for reply in replies:
            assert_same(subject, wanted, reply)
            assert_whole(subject, reply)
        if n_open:
            return n_open
    raise NotExercised(f"Every answer finished before the pause ({mode}).")


def _aborted_answers(subject: Subject) -> int:
    """Count the aborted answers; Failed unless each starts like the complete one."""
    for _ in range(INTERRUPTION_ATTEMPTS):
        aborted, _ = _interrupted(subject, "abort", **ENDLESS)
        n_aborted = sum(_assert_prefix(subject, reply) for reply in aborted)
        if n_aborted:
            return n_aborted
    raise NotExercised("The abort reached the engine only after every whole answer.")


def _interrupted(
    subject: Subject, mode: str, **more: Any
) -> tuple[list[Exchange], int]:
    """Return the answers to streams during a pause, and the number of open streams."""
    begun = [threading.Event() for _ in range(N_STREAMS)]
    streams = [partial(_stream, subject, event, **more) for event in begun]
    with in_threads(streams) as asked:
        for event in begun:
            event.wait()
        with paused(subject, mode):
            time.sleep(PAUSE)
            n_open = sum(not reply.done() for reply in asked)
    return [reply.result() for reply in asked], n_open


def _stream(subject: Subject, begun: threading.Event, **more: Any) -> Exchange:
    """Return the answer to a stream; its first chunk or its failure sets `begun`."""
    body = subject.body("long", stream=True, logprobs=True, top_logprobs=2, **more)
    try:
        return subject.send(body, "streaming 'long'", lambda event: begun.set())
    finally:
        begun.set()


@contextmanager
def paused(subject: Subject, mode: str) -> Iterator[None]:
    """Pause the server, and let it continue unless a signal ends the command."""
    with subject.asking(f"/pause_generation ({mode})"):
        try:
            subject.post("/pause_generation", {"mode": mode})
        except HttpError as error:
            if error.status != 400:
                raise
            raise Skipped(f"The server refuses to be paused: {error.body}") from error
    with unless_signalled(partial(_continue, subject)):
        yield


def _continue(subject: Subject) -> None:
    with subject.asking("/continue_generation"):
        subject.post("/continue_generation", {})


def _assert_prefix(subject: Subject, reply: Exchange) -> bool:
    """True if the answer was aborted; Failed unless it starts like the complete one."""
    assert_whole(subject, reply)
    [completion] = reply.completions
    if completion.finish_reason != "abort":
        return False
    aborted = replace(reply, where=f"{reply.where}, aborted")
    assert_prefix(subject, "long", aborted)
    return True
