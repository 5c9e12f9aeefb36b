"""Requests that end before their answer is whole, and pauses of generation."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from . import prompts, release, request_ids, weight_versions

if TYPE_CHECKING:
    from sglang.srt.managers.io_struct import AbortReq, BaseReq
    from sglang.srt.managers.schedule_batch import Req
    from sglang.srt.managers.scheduler import Scheduler
    from sglang.srt.managers.tokenizer_manager import ReqState, TokenizerManager

_LOGPROBS = (
    "output_token_logprobs",
    "output_top_logprobs",
    "output_token_ids_logprobs",
)


def finish(
    manager: TokenizerManager,
    state: ReqState,
    abort: AbortReq,
    out: dict[str, Any],
    is_incremental: bool,
) -> None:
    """Forget a request that was aborted, and put in its answer all that others have.

    Args:
        abort: says that the scheduler ended the request.
        out: its answer, or the last chunk of it, about to be queued.
        is_incremental: whether its chunks hold only what is new.
    """
    manager.rid_to_state.pop(abort.rid, None)
    meta_info = out["meta_info"]
    if is_incremental:
        _leave_out_what_was_sent(state, out)
    else:
        out["output_ids"] = state.output_ids.copy()
    reported = getattr(state, release.REPORTED_INFO)
    for key, values in state.customized_info_accumulated.items():
        if key in reported:
            meta_info[key] = [] if is_incremental else values.copy()
    # Without these two a chat answer fails.
    meta_info["prompt_tokens"] = prompts.count(state)
    if "weight_version" not in meta_info:
        meta_info["weight_version"] = manager.server_args.weight_version
    if "weight-versions" in release.PATCHES:
        weight_versions.tell(state, meta_info)
    if not release.ABORTS_RELEASE_LORA:
        _release_lora(manager, state, abort)


def _leave_out_what_was_sent(state: ReqState, out: dict[str, Any]) -> None:
    """Leave in a chunk nothing of what was generated: earlier chunks have it."""
    out["output_ids"] = []
    if release.TEXT_IS_NEW:
        out["text"] = ""
    if release.LOGPROBS_ARE_NEW:
        meta_info = out["meta_info"]
        for key in meta_info.keys() & _LOGPROBS:
            meta_info[key] = meta_info[key][len(state.output_ids) :]


def _release_lora(manager: TokenizerManager, state: ReqState, abort: AbortReq) -> None:
    """Release the adapter of an aborted request, if it has one.

    With a `finished_reason` the tokenizer manager does so where it hands the answer on.
    """
    if state.obj.lora_path and state.obj.lora_id and not abort.finished_reason:
        release_ = manager.lora_registry.release(state.obj.lora_id)
        asyncio.create_task(release_)  # noqa: RUF006 # as SGLang does it


def raise_refusal(content: dict[str, Any]) -> None:
    """End a stream with the error for which the scheduler refused its request.

    Raises:
        ValueError: says why: the prompt is too long, its grammar does not compile.
    """
    reason = content["meta_info"]["finish_reason"]
    if reason and reason["type"] == "abort" and reason.get("status_code") == 400:
        raise ValueError(reason["message"])


def abort_elsewhere(manager: TokenizerManager, rid: str) -> None:
    """Abort a request that another tokenizer worker has, if there are several."""
    from sglang.srt.managers.io_struct import AbortReq

    is_unknown = rid and rid not in manager.rid_to_state
    if is_unknown and manager.server_args.tokenizer_worker_num > 1:
        abort = request_ids.for_engine(manager, AbortReq(rid=rid))
        manager.send_to_scheduler.send_pyobj(abort)


def address(output: BaseReq, request: Req | None) -> None:
    """Send what concerns a request to the tokenizer worker that has the request."""
    worker = getattr(request, "http_worker_ipc", None)
    if worker is not None and output.http_worker_ipc is None:
        output.http_worker_ipc = worker


def refuse_pause(manager: TokenizerManager) -> None:
    """Refuse to pause where there are several tokenizer workers.

    Raises:
        HTTPException: there are; only the one that is asked would know.
    """
    if manager.server_args.tokenizer_worker_num > 1:
        import fastapi

        raise fastapi.HTTPException(
            status_code=HTTPStatus.BAD_REQUEST,
            detail=(
                "Generation cannot be paused with --tokenizer-worker-num above 1: "
                "only one of the workers would know. Abort requests instead."
            ),
        )


def merge_last_batch(scheduler: Scheduler) -> None:
    """Let the requests of the last prefill run on with those that are running.

    A batch without requests has nothing to merge with.
    """
    if scheduler.last_batch.is_empty():
        return
    if scheduler.running_batch.is_empty():
        scheduler.running_batch = scheduler.last_batch
    else:
        scheduler.running_batch.merge_batch(scheduler.last_batch)
