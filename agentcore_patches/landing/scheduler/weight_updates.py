"""Updates of the weights: in step on all ranks, and with a new cache namespace."""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib import import_module
from operator import methodcaller
from typing import TYPE_CHECKING, Any

from .. import release
from ..shared.decorators import wrapping
from . import loaded_tensors, ranks, requests
from .weight_versions import rename, weights

if TYPE_CHECKING:
    from sglang.srt.managers.io_struct import (
        UpdateWeightFromDiskReqInput,
        UpdateWeightsFromDistributedReqInput,
        UpdateWeightsFromIPCReqInput,
        UpdateWeightsFromTensorReqInput,
    )
    from sglang.srt.managers.scheduler import Scheduler
    from sglang.srt.managers.scheduler_components.weight_updater import (
        SchedulerWeightUpdaterManager,
    )

logger = logging.getLogger(__name__)

_REFUSED = (
    "New weights are rejected and nothing was changed: {what}. A prompt could reuse KV "
    "cache that other weights computed. {remedy}."
)


# Caches that look up entries by tokens only and ignore the request's key.
_BY_TOKENS_ALONE = (
    "RadixCacheCpp",
    "LMCRadixCache",
    "LMCacheUnifiedRadixCache",
    "FlexKVRadixCache",
)


@wrapping
def update(change: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Decorate a weight update: keep caches of old and new weights apart, never crash.

    A cache in use is not flushed; new requests get other keys instead. All ranks agree
    on success or failure, because weights that differ between ranks are wrong on each.
    """
    return _update(change, False, *args, **kwargs)


@wrapping
def update_with_barrier(change: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Decorate like `update`, for an update that ends in a barrier of all ranks.

    A rank that fails before the barrier enters it as well: the other ranks wait there.
    """
    return _update(change, True, *args, **kwargs)


def _update(
    change: Callable[..., Any],
    ends_in_barrier: bool,
    self: Scheduler | SchedulerWeightUpdaterManager,
    recv_req: UpdateWeightFromDiskReqInput
    | UpdateWeightsFromDistributedReqInput
    | UpdateWeightsFromTensorReqInput
    | UpdateWeightsFromIPCReqInput,
    *args: Any,
    **kwargs: Any,
) -> Any:
    import torch

    scheduler = weights.scheduler
    refusals = ranks.exchange(scheduler, _refusal(scheduler) or _lacks(recv_req))
    if any(refusals):
        return _failure(recv_req, next(filter(None, refusals)))
    if recv_req.flush_cache and not _is_idle(scheduler):
        recv_req.flush_cache = False
    # The last batch must finish before its weights change.
    torch.get_device_module(scheduler.device).synchronize()
    _start_namespace()
    weights.read_names()
    loaded = loaded_tensors.Loaded(weights.names)
    # From 0.5.19 on, SGLang would take the new version before it is checked.
    version, recv_req.weight_version = recv_req.weight_version, None
    answer, timeout = None, None
    try:
        with loaded.watching(_models(scheduler, recv_req)):
            answer = change(self, recv_req, *args, **kwargs)
        problem = "" if answer.success else answer.message or "no reason given"
    except Exception as error:
        if not ranks.are_in_step(scheduler):
            raise
        logger.exception("Failed to update weights")
        problem, timeout = f"{type(error).__name__}: {error}", ranks.TIMEOUT
        if ends_in_barrier:
            ranks.enter_barrier(scheduler)
    problems = ranks.exchange(scheduler, problem, timeout)
    if any(problems):
        if answer is None or not all(problems):
            return _failure(recv_req, _describe(problems))
        return answer
    untaken = _find_untaken(scheduler, recv_req, loaded)
    if untaken:
        logger.error("Failed to update weights: %s", untaken)
        return _failure(recv_req, untaken)
    rename(version)
    return answer


def _lacks(recv_req: Any) -> str:
    """Return which files a folder with new weights lacks; empty if it is complete."""
    # Only updates from disk have a folder.
    folder = getattr(recv_req, "model_path", None)
    missing = loaded_tensors.missing_files(folder) if folder else []
    if not missing:
        return ""
    return (
        f"The weights are as before: {folder} lacks {len(missing)} of the files that "
        f"its index lists, such as {missing[0]}."
    )


def _models(scheduler: Scheduler, recv_req: Any) -> list[Any]:
    """Return the models that an update is for; empty if they are not known."""
    workers = [scheduler.tp_worker, scheduler.draft_worker]
    if hasattr(scheduler.tp_worker, "weight_update_runners"):
        return [
            runner.model
            for worker in filter(None, workers)
            for _, runner in worker.weight_update_runners()
        ]
    if scheduler.draft_worker and hasattr(recv_req, "serialized_named_tensors"):
        return []  # Only the draft model may take some of them.
    return [scheduler.tp_worker.model_runner.model]


def _find_untaken(
    scheduler: Scheduler, recv_req: Any, loaded: loaded_tensors.Loaded
) -> str:
    """Word the failure of an update with tensors that no rank loads, empty for none."""
    names = loaded.untaken()
    if ranks.are_in_step(scheduler):
        of_ranks = ranks.exchange(scheduler, "\0".join(names))
        everywhere = set.intersection(*({*one.split("\0")} for one in of_ranks))
        names = [name for name in names if name in everywhere]
    elif len(names) < len(loaded.names) or not hasattr(recv_req, "model_path"):
        return ""  # Another pipeline stage has the layers.
    if not names:
        return ""
    total = len(loaded.names)
    n_loaded = total - len(names)
    effect = "mixed now: update all of them" if n_loaded else "as before"
    return (
        f"{n_loaded} of {total} tensors were loaded: the model has none named "
        f"{names[0]}. The weights are {effect}. Use the names of its checkpoint."
    )


def _describe(problems: list[str]) -> str:
    """Word a failed update for the trainer, from the problem of each rank."""
    failed = [rank for rank, problem in enumerate(problems) if problem]
    where = ""
    if len(problems) > 1:
        where = f" on ranks {', '.join(map(str, failed))} of {len(problems)}"
    return (
        f"Failed to update weights{where}: {problems[failed[0]]}. Some of them may "
        "have changed: update all of them again."
    )


@wrapping
def attach_storage(
    attach: Callable[..., Any],
    self: Scheduler,
    recv_req: Any,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Refuse to attach KV cache storage once the weights were updated.

    Storage looks up entries by tokens only, and may hold entries of older weights.
    """
    if weights.n_updates:
        return _failure(
            recv_req,
            "Storage is rejected: the weights were updated, and it may hold KV "
            "cache of older weights. Start the server with it, and do not update "
            "weights.",
        )
    return attach(self, recv_req, *args, **kwargs)


@wrapping
def end_update(end: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Count the end of an update that takes several requests as one more update."""
    _start_namespace()
    return end(*args, **kwargs)


def _failure(recv_req: Any, message: str) -> Any:
    """Build the output for a request that failed."""
    return requests.build_output(recv_req, success=False, message=message)


def _is_idle(scheduler: Scheduler) -> bool:
    """True if no request uses the cache, or will use it after a pause."""
    return (
        not scheduler.waiting_queue
        and scheduler.chunked_req is None
        and methodcaller(release.IS_IDLE)(scheduler)
    )


def _refusal(scheduler: Scheduler) -> str:
    """Return why the cache cannot separate old and new weights; empty if it can."""
    # SGLang's caches differ in their attributes; the one for sessions wraps another.
    cache = getattr(scheduler.tree_cache, "inner", scheduler.tree_cache)
    kind = type(cache).__name__
    if kind in _BY_TOKENS_ALONE:
        return _REFUSED.format(
            what=f"the server's cache, {kind}, looks up entries by tokens only",
            remedy="Start the server with SGLang's own radix cache",
        )
    if getattr(cache, "enable_storage", False) or scheduler.enable_hicache_storage:
        return _REFUSED.format(
            what="the storage of the hierarchical cache outlives the weights",
            remedy="Start the server without --hicache-storage-backend",
        )
    if getattr(cache, "linker", None) is not None:
        return _REFUSED.format(
            what="the external store of the cache outlives the weights",
            remedy="Start the server without --enable-unified-cache-external-linker",
        )
    if release.SESSIONS_MAY_STREAM and any(
        session.streaming for session in scheduler.session_controller.sessions.values()
    ):
        return _REFUSED.format(
            what="a streaming session keeps the KV cache of its last turn",
            remedy="Close such sessions first (/close_session)",
        )
    return ""


def _start_namespace() -> None:
    """Start a new cache namespace, so that no prompt finds KV cache of old weights."""
    weights.n_updates += 1
    _clear_image_cache()


def _clear_image_cache() -> None:
    """Clear the cached embeddings of images, audio and video."""
    module = import_module(f"sglang.srt.managers.{release.IMAGE_CACHE}")
    if module.embedding_cache is not None:
        module.embedding_cache.clear()
