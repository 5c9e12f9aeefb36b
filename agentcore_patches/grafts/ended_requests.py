"""Where requests end: in `tokenizer_manager.py`, `serving_base.py`, `scheduler.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict

if TYPE_CHECKING:
    from sglang.srt.managers.io_struct import AbortReq


def abort_request_of_another_worker(self, rid: str) -> None:
    """Abort a request that another tokenizer worker has, if there are several."""
    is_unknown = rid and rid not in self.rid_to_state
    if is_unknown and self.server_args.tokenizer_worker_num > 1:
        self.send_to_scheduler.send_pyobj(AbortReq(rid=rid))


def _raise_refusal(self, content: Dict[str, Any]) -> None:
    """Let a stream end with the error for which the scheduler refused its request.

    Raises:
        ValueError: says why: the prompt is too long, its grammar does not compile.
    """
    reason = content["meta_info"]["finish_reason"]
    if reason and reason["type"] == "abort" and reason.get("status_code") == 400:
        raise ValueError(reason["message"])


def _merge_last_batch(self) -> None:
    """Let the requests of the last prefill run on with those that are running.

    A batch without requests has nothing to merge with.
    """
    if self.last_batch.is_empty():
        return
    if self.running_batch.is_empty():
        self.running_batch = self.last_batch
    else:
        self.running_batch.merge_batch(self.last_batch)
