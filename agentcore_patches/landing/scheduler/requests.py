"""Requests in the scheduler: whose they are, and which of them have results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..shared import request_ids

if TYPE_CHECKING:
    from sglang.srt.managers.io_struct import BaseReq, SessionParams
    from sglang.srt.managers.schedule_batch import Req
    from sglang.srt.managers.scheduler import Scheduler


def address(output: BaseReq, request: Req | None) -> None:
    """Route an output to the tokenizer worker that owns the request.

    Args:
        request: SGLang also passes batches, which have no single worker.
    """
    worker = getattr(request, "http_worker_ipc", None)
    if worker is not None and output.http_worker_ipc is None:
        output.http_worker_ipc = worker


def with_results(reqs: list[Req]) -> list[Req]:
    """Leave out requests that are retracted and will be computed again.

    While steps overlap, one of them may not have had any result yet.
    """
    return [req for req in reqs if req.finished() or not req.is_retracted]


def merge_last_batch(scheduler: Scheduler) -> None:
    """Merge the last prefill batch into the running batch; either may be empty.

    SGLang's `merge_batch` does not expect an empty batch.
    """
    if scheduler.last_batch.is_empty():
        return
    if scheduler.running_batch.is_empty():
        scheduler.running_batch = scheduler.last_batch
    else:
        scheduler.running_batch.merge_batch(scheduler.last_batch)


def find_turn(session_params: SessionParams, turns: dict[str, Any]) -> None:
    """Replace the `rid` of an earlier turn in a session request by the engine's ID."""
    if session_params.rid is None or session_params.rid in turns:
        return
    for engine_rid in reversed(turns):
        if request_ids.rid_of(engine_rid) == session_params.rid:
            session_params.rid = engine_rid
            return


def build_output(recv_req: Any, **fields: Any) -> Any:
    """Build the output object that belongs to the type of a request."""
    from sglang.srt.managers import io_struct

    name = type(recv_req).__name__.replace("Input", "Output")
    return getattr(io_struct, name)(**fields)
