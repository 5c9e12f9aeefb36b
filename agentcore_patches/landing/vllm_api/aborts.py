"""Aborts of requests to vLLM's endpoint, whose samples SGLang starts late."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..http import exchanges

if TYPE_CHECKING:
    from sglang.srt.managers.tokenizer_manager import ReqState, TokenizerManager

    from .generate import Job

# Seconds between two looks for requests to abort.
_LOOK = 0.2

# Seconds after which a request is aborted again; each time, twice as many.
_AGAIN = 0.5


class Aborts:
    """Aborts requests, again and again until they have finished.

    An abort may come before the engine has the request. With `n` > 1, SGLang sends the
    samples when the prompt's prefill has finished, even if it was aborted.
    """

    def __init__(self, manager: TokenizerManager, running: dict[str, Job]) -> None:
        self._manager = manager
        self._running = running
        self._open: dict[int, Job] = {}
        # When to abort each sample again, and the seconds since its last abort.
        self._due: dict[str, tuple[float, float]] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self, request_id: str | None) -> int:
        """Abort a request, or all after SGLang's abort of all; return how many."""
        running = self._running
        names = [*running] if request_id is None else [request_id]
        found = [running[name] for name in names if name in running]
        # SGLang passes the object with the parameters on to each sample.
        self._open |= {id(job.sampling.params): job for job in found}
        if request_id is None:
            self._abort(are_aborted=True)
        if self._open and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._repeat())
        return len(found)

    async def _repeat(self) -> None:
        while self._open:
            self._abort()
            await asyncio.sleep(_LOOK)

    def _abort(self, are_aborted: bool = False) -> None:
        """Abort the samples that are due, and drop the requests that have finished.

        Args:
            are_aborted: every request that the engine has was aborted just now.
        """
        manager = self._manager
        now = time.monotonic()
        due: dict[str, tuple[float, float]] = {}
        have_samples = set()
        for rid, state in [*manager.rid_to_state.items()]:
            key = id(state.obj.sampling_params)
            if key not in self._open:
                continue
            have_samples.add(key)
            if not _is_sent(manager, state):
                continue
            time_of_next, pause = self._due.get(rid, (now, _AGAIN / 2))
            if are_aborted or time_of_next <= now:
                pause *= 2
                time_of_next = now + pause
                if not are_aborted:
                    manager.abort_request(rid)
            due[rid] = time_of_next, pause
        self._due = due
        self._open = {
            key: job
            for key, job in self._open.items()
            if key in have_samples or self._running.get(job.request_id) is job
        }


def _is_sent(manager: TokenizerManager, state: ReqState) -> bool:
    """True once a request was sent to the engine."""
    return manager.server_args.language_only or bool(exchanges.run_of(state).engine_rid)


def find_samples(manager: TokenizerManager, job: Job) -> Iterator[str]:
    """Yield the IDs of the engine's requests for the samples of a request.

    SGLang gives the samples of `n` > 1 random IDs, but passes the object with the
    sampling parameters on to each.
    """
    params = job.sampling.params
    states = manager.rid_to_state
    rids = [job.request_id] if (params.get("n") or 1) == 1 else states
    for rid in rids:
        if rid in states and states[rid].obj.sampling_params is params:
            yield rid


def forget_unsent(manager: TokenizerManager, job: Job) -> None:
    """Drop the state that SGLang leaves of a request that it rejects unsent."""
    for rid in [*find_samples(manager, job)]:
        if not _is_sent(manager, manager.rid_to_state[rid]):
            manager.rid_to_state.pop(rid, None)
