"""Requests that are aborted, rejected or retracted mid-way, and pauses."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from .. import release
from . import exchanges, logprobs, metrics, prompts, request_ids, weight_versions

if TYPE_CHECKING:
    from sglang.srt.managers.io_struct import AbortReq
    from sglang.srt.managers.tokenizer_manager import ReqState, TokenizerManager

# Causes of aborts by the status code that the scheduler gives; others are failures.
_CAUSES = {
    None: "asked",
    HTTPStatus.BAD_REQUEST: "rejected",
    HTTPStatus.SERVICE_UNAVAILABLE: "unavailable",
}

# With `max_new_tokens: 0`, `token_ids_logprob` scores a prompt: its values are the
# answer of /v1/score, and belong to no token.
_LOGPROBS = (*logprobs.KEYS, "output_token_ids_logprobs")


def finish(
    manager: TokenizerManager,
    state: ReqState,
    abort: AbortReq,
    out: dict[str, Any],
    is_incremental: bool,
) -> None:
    """Drop the state of an aborted request, and complete its final output.

    Args:
        out: the final output or chunk, about to be queued. It gets every field that
            other outputs have.
    """
    manager.rid_to_state.pop(abort.rid, None)
    meta_info = out["meta_info"]
    count(meta_info["finish_reason"])
    if is_incremental:
        _leave_out_what_was_sent(state, out)
    else:
        out["output_ids"] = state.output_ids.copy()
    reported = getattr(state, release.REPORTED_INFO)
    for key, values in state.customized_info_accumulated.items():
        if key in reported:
            meta_info[key] = [] if is_incremental else values.copy()
    # Chat fails on an output without these two fields.
    meta_info["prompt_tokens"] = prompts.count(state)
    if "weight_version" not in meta_info:
        meta_info["weight_version"] = manager.server_args.weight_version
    weight_versions.report(exchanges.run_of(state), meta_info)
    if not release.ABORTS_RELEASE_LORA:
        _release_lora(manager, state, abort)


def count(finish_reason: dict[str, Any] | None) -> None:
    """Count a finished request if the scheduler aborted it."""
    if finish_reason is not None and finish_reason["type"] == "abort":
        cause = _CAUSES.get(finish_reason.get("status_code"), "failed")
        metrics.count(metrics.ABORTED_REQUESTS, cause)


def _leave_out_what_was_sent(state: ReqState, out: dict[str, Any]) -> None:
    """Empty the lists of a chunk: earlier chunks carried all of their values."""
    out["output_ids"] = []
    if release.TEXT_IS_NEW:
        out["text"] = ""
    if release.LOGPROBS_ARE_NEW:
        meta_info = out["meta_info"]
        for key in meta_info.keys() & _LOGPROBS:
            meta_info[key] = meta_info[key][len(state.output_ids) :]


def _release_lora(manager: TokenizerManager, state: ReqState, abort: AbortReq) -> None:
    """Release the adapter of an aborted request, if it has one.

    If the abort has a `finished_reason`, the tokenizer manager releases the adapter
    when it passes the output on.
    """
    if state.obj.lora_path and state.obj.lora_id and not abort.finished_reason:
        release_ = manager.lora_registry.release(state.obj.lora_id)
        asyncio.create_task(release_)  # noqa: RUF006 # like SGLang


def raise_refusal(content: dict[str, Any]) -> None:
    """Fail a stream with the error for which the scheduler rejected the request."""
    reason = content["meta_info"]["finish_reason"]
    if reason and reason["type"] == "abort" and reason.get("status_code") == 400:
        raise ValueError(reason["message"])


def abort_elsewhere(manager: TokenizerManager, rid: str) -> None:
    """With several tokenizer workers, abort a request that another worker owns."""
    from sglang.srt.managers.io_struct import AbortReq

    is_unknown = rid and rid not in manager.rid_to_state
    if is_unknown and manager.server_args.tokenizer_worker_num > 1:
        abort = request_ids.for_engine(manager, AbortReq(rid=rid))
        manager.send_to_scheduler.send_pyobj(abort)


def refuse_pause(manager: TokenizerManager) -> None:
    """Refuse to pause a server with several tokenizer workers."""
    if manager.server_args.tokenizer_worker_num > 1:
        import fastapi

        raise fastapi.HTTPException(
            status_code=HTTPStatus.BAD_REQUEST,
            detail=(
                "Generation cannot be paused with --tokenizer-worker-num above 1: "
                "only one of the workers would pause. Abort requests instead."
            ),
        )
