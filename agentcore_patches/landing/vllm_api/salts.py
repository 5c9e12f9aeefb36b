"""vLLM's `cache_salt`, in the scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sglang.srt.managers.io_struct import TokenizedGenerateReqInput
    from sglang.srt.managers.schedule_batch import Req


def salt(recv_req: TokenizedGenerateReqInput, req: Req) -> None:
    """Add the client's salt to a request's key in the prefix cache.

    Args:
        req: its key already names the LoRA adapter.
    """
    req.extra_key = (recv_req.extra_key or "") + (req.extra_key or "") or None
