"""Guards of the scheduler's memory: requests to release and resume it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..scheduler import requests
from ..shared.decorators import wrapping

if TYPE_CHECKING:
    from sglang.srt.managers.io_struct import ResumeMemoryOccupationReqInput
    from sglang.srt.managers.scheduler import Scheduler
    from sglang.srt.managers.scheduler_components.weight_updater import (
        SchedulerWeightUpdaterManager,
    )

logger = logging.getLogger(__name__)


@wrapping
def release_memory(
    release_: Callable[..., Any],
    self: Scheduler | SchedulerWeightUpdaterManager,
    recv_req: Any,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Refuse to release memory in use; SGLang's assertion would crash the server."""
    before = {*self.offload_tags}
    try:
        return release_(self, recv_req, *args, **kwargs)
    except AssertionError as error:
        if self.offload_tags != before:
            raise
        logger.warning("Refused to release memory: %s", error)
        return requests.build_output(
            recv_req,
            refusal=f"Nothing was released: {error} Wait for open requests, or "
            "pause with mode abort, and try again.",
        )


@wrapping
def resume_memory(
    resume: Callable[..., Any],
    self: Scheduler | SchedulerWeightUpdaterManager,
    recv_req: ResumeMemoryOccupationReqInput,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Refuse to resume memory that was not released; it would crash the server."""
    from sglang.srt.constants import GPU_MEMORY_ALL_TYPES

    tags = [*dict.fromkeys(recv_req.tags or GPU_MEMORY_ALL_TYPES)]
    kept = [tag for tag in tags if tag not in self.offload_tags]
    if kept:
        return requests.build_output(
            recv_req,
            refusal=f"Nothing was resumed: {', '.join(kept)} was not released. "
            "Name only tags that were released.",
        )
    recv_req.tags = tags
    return resume(self, recv_req, *args, **kwargs)
