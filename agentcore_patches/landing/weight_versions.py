"""Record the weight version of each token; keep prompts off KV cache of old weights.

The scheduler counts weight updates. When the prefill of a request starts, the count
becomes part of its prefix cache key. The request therefore never finds KV cache that
other weights computed; such entries are evicted as least recently used. Before the
first update, the keys are those of stock SGLang.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import wraps
from importlib import import_module
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from . import loaded_tensors, metrics, release

if TYPE_CHECKING:
    from sglang.srt.entrypoints.openai.protocol import (
        ChatCompletionRequest,
        CompletionRequest,
    )
    from sglang.srt.entrypoints.openai.serving_base import OpenAIServingBase
    from sglang.srt.managers.io_struct import (
        BatchStrOutput,
        LoadLoRAAdapterFromTensorsReqInput,
        LoadLoRAAdapterReqInput,
        UpdateWeightFromDiskReqInput,
        UpdateWeightsFromDistributedReqInput,
        UpdateWeightsFromIPCReqInput,
        UpdateWeightsFromTensorReqInput,
    )
    from sglang.srt.managers.schedule_batch import Req, ScheduleBatch
    from sglang.srt.managers.scheduler import Scheduler
    from sglang.srt.managers.scheduler_components.weight_updater import (
        SchedulerWeightUpdaterManager,
    )
    from sglang.srt.managers.tokenizer_manager import ReqState, TokenizerManager
    from sglang.srt.server_args import ServerArgs
    from torch.distributed import Work

logger = logging.getLogger(__name__)

# Seconds between two checks whether generation was paused while an update waits.
_POLL_INTERVAL = 0.05

# Time that a rank whose update failed waits for the others, one of which may hang. The
# server then crashes. SGLang's watchdog has the same default.
_RANKS_TIMEOUT = timedelta(seconds=300)

# Time after which the log names the ranks that a starting rank still waits for.
_PATIENCE = timedelta(seconds=10)

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


# SGLang's version of weights that nobody named. Readers of the top-level field expect
# a trainer's version, often a number.
_NO_VERSION = "default"


class _Weights:
    """The weights of this process.

    Attributes:
        scheduler: the only scheduler of this process.
        checkpoint: the checkpoint whose tensor names are still to be read.
        names: names of tensors that the models load, or skip on purpose.
        version: the trainer's name for the weights.
        n_updates: number of weight updates so far.
        secret: part of the cache namespaces, so that no client can name one. Ranks need
            not agree on it: each compares only its own keys.
        unsent: requests with version spans that no output has had yet, by ID.
    """

    scheduler: Scheduler

    def __init__(self) -> None:
        self.checkpoint: str | None = None
        self.names: set[str] = set()
        self.version = ""
        self.n_updates = 0
        self.secret = secrets.token_hex(8)
        self.unsent: WeakValueDictionary[str, Req] = WeakValueDictionary()


_weights = _Weights()


def start(scheduler: Scheduler, server_args: ServerArgs) -> None:
    """Register the scheduler of this process and its first weights.

    Raises:
        RuntimeError: another rank of this server does not run the same patches.
    """
    _weights.scheduler = scheduler
    _weights.version = server_args.weight_version
    _weights.checkpoint = server_args.model_path
    if Path(server_args.model_path).is_dir():
        _read_names()  # A trainer may overwrite the folder.
    _check_ranks()


def _read_names() -> None:
    """Read the names in the checkpoint, once; a model's class knows all of them."""
    if _weights.checkpoint is not None:
        _weights.names |= loaded_tensors.names_in_checkpoint(_weights.checkpoint)
        _weights.checkpoint = None


def _check_ranks() -> None:
    """Make sure that all ranks run the same patches, or the first update would hang.

    An unpatched rank takes part in no exchange, so each rank leaves a note in the store
    of the process group and waits for those of the others.
    """
    from torch import distributed
    from torch.distributed.distributed_c10d import _get_default_store

    if not distributed.is_initialized() or distributed.get_world_size() == 1:
        return
    store, n_ranks = _get_default_store(), distributed.get_world_size()
    names = [f"agentcore-patch {rank}" for rank in range(n_ranks)]
    own = f"agentcore-patch {release.VERSION}: {', '.join(release.INSTALLED)}"
    store.set(names[distributed.get_rank()], own)
    remedy = (
        "Run `agentcore-patch apply`, in the same version, on every node, with the "
        "same extras"
    )
    for timeout in (_PATIENCE, _RANKS_TIMEOUT):
        try:
            store.wait(names, timeout)
            break
        except RuntimeError:
            missing = [
                rank for rank in range(n_ranks) if not store.check([names[rank]])
            ]
            problem = (
                f"Not all ranks of this server run {own}: no patches were reported by "
                f"ranks {', '.join(map(str, missing))} of {n_ranks}. {remedy}."
            )
            logger.warning(problem)
    else:
        raise RuntimeError(problem)
    for rank, name in enumerate(names):
        if (other := store.get(name).decode()) != own:
            raise RuntimeError(
                f"Not all ranks of this server run {own}: rank {rank} runs {other}. "
                f"{remedy}."
            )


def set_version(version: str | None) -> None:
    """Set the version of the weights; None keeps the current version."""
    if version is not None:
        _weights.version = version


def _rename(version: str | None) -> None:
    """Set the version of the weights, in SGLang's own record too; None keeps it."""
    set_version(version)
    record = getattr(_weights.scheduler, "record_weight_version_change", None)
    if record is not None:
        record(new_version=version)


def load_adapter(load: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate the scheduler's handler that loads an adapter: set the new version."""

    @wraps(load)
    def loaded(
        self: Scheduler,
        recv_req: LoadLoRAAdapterReqInput | LoadLoRAAdapterFromTensorsReqInput,
    ) -> Any:
        result = load(self, recv_req)
        if result.success:
            _rename(recv_req.weight_version)
        return result

    return loaded


def name_adapter(load: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate the tokenizer manager's methods that load an adapter, likewise."""

    @wraps(load)
    async def loaded(
        self: TokenizerManager,
        obj: LoadLoRAAdapterReqInput | LoadLoRAAdapterFromTensorsReqInput,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        result = await load(self, obj, *args, **kwargs)
        if result.success:
            self._update_weight_version_if_provided(obj.weight_version)
        return result

    return loaded


def dispatcher() -> Any:
    """Return a dispatcher for the request that sets the weight version."""
    from sglang.srt.managers.io_struct import UpdateWeightVersionReqInput
    from sglang.utils import TypeBasedDispatcher

    return TypeBasedDispatcher(
        [(UpdateWeightVersionReqInput, lambda req: set_version(req.new_version))]
    )


def mark(batch: ScheduleBatch) -> None:
    """Record the weights that a batch is about to run on.

    With overlap scheduling, its result may be handled after the next update.
    """
    batch.weight_version = _weights.version


def handle(batch: ScheduleBatch) -> None:
    """Assign the tokens of the result that is handled next to the weights it ran on.

    A step costs one comparison per request. Only a request whose version changes gets
    a new span, and only such a request is in `unsent` until it is sent.
    """
    version = batch.weight_version or _weights.version
    for req in [one for one in batch.reqs if one.weight_version != version]:
        req.weight_version = version
        spans, begin = req.weight_versions, len(req.output_ids)
        if spans and spans[-1][1] == begin:
            spans.pop()  # Its weights have sampled no token.
        spans.append([version, begin if spans else 0])
        # The tokens of a beam search are not the request's own: it has no versions.
        if getattr(req, "beam_group", None) is None:
            _weights.unsent[req.rid] = req


def of_output(rids: Iterable[str]) -> list[list[Any] | None] | None:
    """Return the version spans of the requests in an output that have new ones.

    Args:
        rids: IDs of the requests in the output, in order.
    """
    if not _weights.unsent:
        return None
    new = {*_weights.unsent.keys()}.intersection(rids)
    if not new:
        return None
    return [_of_request(_weights.unsent[rid]) if rid in new else None for rid in rids]


def _of_request(req: Req) -> list[Any] | None:
    """Return the spans of the tokens of a request that are sent now, or None.

    The last span may grow: `take` extends it with each output.
    """
    spans, n_tokens = req.weight_versions, req.send_token_offset
    ends = [begin for _, begin in spans[1:]] + [n_tokens]
    sent = [
        [version, begin, min(end, n_tokens)]
        for (version, begin), end in zip(spans, ends, strict=True)
        if begin < n_tokens
    ]
    if len(sent) == len(spans):
        del _weights.unsent[req.rid]
    if not release.SPANS_ARE_STRUCTS:
        return sent or None
    from sglang.srt.utils.weight_versions import WeightVersionSpan

    return [
        WeightVersionSpan(version=version, start=begin, end=end)
        for version, begin, end in sent
    ] or None


def take(
    state: ReqState, meta_info: dict[str, Any], output: BatchStrOutput, index: int
) -> None:
    """Store the weight versions of a request, and add them to its `meta_info`.

    Args:
        state: state of the request.
        meta_info: `meta_info` of its next output.
        output: output of the batch.
        index: position of the request in the batch.
    """
    # Outputs of embeddings have no such column.
    column = getattr(output, "weight_versions", None)
    if column is not None and column[index] is not None:
        spans = column[index]
        if release.SPANS_ARE_STRUCTS:
            spans = [[span.version, span.start, span.end] for span in spans]
        vars(state)["weight_versions"] = spans
    spans = vars(state).get("weight_versions")
    if spans:
        spans[-1][2] = output.completion_tokens[index]
        tell(state, meta_info)


def tell(state: ReqState, meta_info: dict[str, Any]) -> None:
    """Add the weight versions of a request's tokens to the `meta_info` of an output."""
    spans = vars(state).get("weight_versions", [])
    if spans:
        meta_info["weight_version"] = spans[-1][0]
    if meta_info["finish_reason"]:
        if len(spans) > 1:
            metrics.count(metrics.MIXED_REQUESTS)
        meta_info["weight_versions"] = [
            {"version": version, "start": begin, "end": end}
            for version, begin, end in spans
        ]


def whole(build: Any) -> Any:
    """Decorate the builder of non-streaming responses: add weight versions.

    `return_token_ids: false` keeps a chat response as it is, unless versions are
    requested. A completion has them if versions or token IDs are requested.
    """

    @wraps(build)
    def built(
        self: OpenAIServingBase,
        request: ChatCompletionRequest | CompletionRequest,
        ret: list[Any],
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        answer = build(self, request, ret, *args, **kwargs)
        # An error response has no choices.
        if hasattr(answer, "choices") and _wants_metadata(request):
            meta_info = ret[0]["meta_info"]
            if meta_info["weight_version"] != _NO_VERSION:
                answer.weight_version = meta_info["weight_version"]
            answer.metadata = {
                **(answer.metadata or {}),
                "weight_versions": meta_info.get("weight_versions", []),
            }
        return answer

    return built


def _wants_metadata(request: ChatCompletionRequest | CompletionRequest) -> bool:
    is_chat = hasattr(request, "messages")
    asked = request.return_token_ids or request.return_weight_versions
    return bool(asked or (is_chat and request.return_token_ids is not False))


def renew(req: Req) -> None:
    """Put the weights' namespace into the cache key of a request whose prefill starts.

    A request that already has KV cache keeps its key. A retracted request with input
    embeddings loses its output tokens, and so their versions.
    """
    if not req.output_ids:
        req.weight_versions = []
        req.weight_version = None
    if _weights.n_updates:
        own = (req.extra_key or "").removeprefix(req.weights_namespace)
        # It goes first, because SGLang looks for the adapter at the end of the key.
        req.weights_namespace = f"weights {_weights.n_updates} {_weights.secret}\0"
        req.extra_key = req.weights_namespace + own


def update(change: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a weight update: keep caches of old and new weights apart, never crash.

    A cache in use is not flushed; new requests get other keys instead. All ranks agree
    on success or failure, because weights that differ between ranks are wrong on each.
    """
    return _updating(change, ends_in_barrier=False)


def update_with_barrier(change: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate like `update`, for an update that ends in a barrier of all ranks.

    A rank that fails before the barrier enters it as well: the other ranks wait there.
    """
    return _updating(change, ends_in_barrier=True)


def _updating(change: Callable[..., Any], ends_in_barrier: bool) -> Callable[..., Any]:
    @wraps(change)
    def changed(
        self: Scheduler | SchedulerWeightUpdaterManager,
        recv_req: UpdateWeightFromDiskReqInput
        | UpdateWeightsFromDistributedReqInput
        | UpdateWeightsFromTensorReqInput
        | UpdateWeightsFromIPCReqInput,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        import torch

        scheduler = _weights.scheduler
        refusals = _tell_ranks(scheduler, _refusal(scheduler) or _lacks(recv_req))
        if any(refusals):
            return _failure(recv_req, next(filter(None, refusals)))
        if recv_req.flush_cache and not _is_idle(scheduler):
            recv_req.flush_cache = False
        # The last batch must finish before its weights change.
        torch.get_device_module(scheduler.device).synchronize()
        _begin_anew()
        _read_names()
        loaded = loaded_tensors.Loaded(_weights.names)
        # From 0.5.19 on, SGLang would take the new version before it is checked.
        version, recv_req.weight_version = recv_req.weight_version, None
        answer, timeout = None, None
        try:
            with loaded.watching(_models(scheduler, recv_req)):
                answer = change(self, recv_req, *args, **kwargs)
            problem = "" if answer.success else answer.message or "no reason given"
        except Exception as error:
            if not _updates_in_step(scheduler):
                raise
            logger.exception("Failed to update weights")
            problem, timeout = f"{type(error).__name__}: {error}", _RANKS_TIMEOUT
            if ends_in_barrier:
                _enter_barrier(scheduler)
        problems = _tell_ranks(scheduler, problem, timeout)
        if any(problems):
            if answer is None or not all(problems):
                return _failure(recv_req, _describe(problems))
            return answer
        untaken = _find_untaken(scheduler, recv_req, loaded)
        if untaken:
            logger.error("Failed to update weights: %s", untaken)
            return _failure(recv_req, untaken)
        _rename(version)
        return answer

    return changed


def _lacks(recv_req: Any) -> str:
    """Return which files a folder with new weights lacks; empty if it is complete."""
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
    if _updates_in_step(scheduler):
        of_ranks = _tell_ranks(scheduler, "\0".join(names))
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


def _updates_in_step(scheduler: Scheduler) -> bool:
    """True if all ranks of the server update their weights at the same time.

    A pipeline stage gets a request only after the previous stage has handled it.
    """
    from torch import distributed

    n_ranks = distributed.get_world_size(scheduler.tp_cpu_group)
    # From 0.5.11 on, this flag makes each data parallel group update by itself.
    flag = "enable_dp_attention_local_control_broadcast"
    is_local = getattr(scheduler.server_args, flag, False)
    return n_ranks == distributed.get_world_size() and not is_local


def _tell_ranks(
    scheduler: Scheduler, problem: str, timeout: timedelta | None = None
) -> list[str]:
    """Exchange problems with the other ranks; return each rank's, empty for none.

    Args:
        timeout: time to wait for the other ranks; None for SGLang's own limit.

    Raises:
        RuntimeError: a rank crashed or did not answer in time.
    """
    import torch
    from torch import distributed

    group = scheduler.tp_cpu_group
    n_ranks = distributed.get_world_size(group)
    if n_ranks == 1 or not _updates_in_step(scheduler):
        return [problem]
    n_problems = torch.tensor([bool(problem)], dtype=torch.int64)
    work = distributed.all_reduce(n_problems, group=group, async_op=True)
    _wait(work, timeout)
    problems = [""] * n_ranks
    if n_problems.item():
        distributed.all_gather_object(problems, problem, group=group)
    return problems


def _enter_barrier(scheduler: Scheduler) -> None:
    """Enter the barrier where the ranks whose update succeeded wait."""
    from torch import distributed

    work = distributed.barrier(group=scheduler.tp_cpu_group, async_op=True)
    _wait(work, _RANKS_TIMEOUT)


def _wait(work: Work, timeout: timedelta | None) -> None:
    """Wait for the other ranks.

    Raises:
        RuntimeError: a rank crashed or did not answer in time.
    """
    if timeout is None:
        work.wait()
    else:
        work.wait(timeout)


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


def attach_storage(attach: Callable[..., Any]) -> Callable[..., Any]:
    """Refuse to attach KV cache storage once the weights were updated.

    Storage looks up entries by tokens only, and may hold entries of older weights.
    """

    @wraps(attach)
    def attached(self: Scheduler, recv_req: Any, *args: Any, **kwargs: Any) -> Any:
        if _weights.n_updates:
            return _failure(
                recv_req,
                "Storage is rejected: the weights were updated, and it may hold KV "
                "cache of older weights. Start the server with it, and do not update "
                "weights.",
            )
        return attach(self, recv_req, *args, **kwargs)

    return attached


def update_lock(manager: TokenizerManager) -> Any:
    """Return the lock that a weight update holds while no request runs.

    The lock does not wait for paused requests, since they do not run. A tokenizer
    worker may learn of a pause while an update is already waiting.
    """
    from sglang.srt.utils.aio_rwlock import RWLock

    class UpdateLock(RWLock):
        @property
        def writer_lock(self) -> Any:
            return self._wait_for_requests()

        @asynccontextmanager
        async def _wait_for_requests(self) -> AsyncIterator[None]:
            acquiring = asyncio.ensure_future(self.acquire_writer())
            try:
                while not (acquiring.done() or manager.is_pause):
                    await asyncio.wait((acquiring,), timeout=_POLL_INTERVAL)
                yield
            finally:
                acquiring.cancel()
                try:
                    await acquiring
                except asyncio.CancelledError:
                    # Wake up the requests that wait for this update.
                    async with self._lock:
                        self._cond.notify_all()
                else:
                    await self.release_writer()

    return UpdateLock()


def one_at_a_time(update: Callable[..., Any]) -> Callable[..., Any]:
    """Run updates from disk one at a time: SGLang keeps only one pending result."""

    @wraps(update)
    async def updated(self: TokenizerManager, *args: Any, **kwargs: Any) -> Any:
        async with vars(self).setdefault("one_update", asyncio.Lock()):
            return await update(self, *args, **kwargs)

    return updated


def counted(update: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate the tokenizer manager's methods that update weights: count updates."""
    kind = update.__name__.rpartition("_")[2]

    @wraps(update)
    async def updated(*args: Any, **kwargs: Any) -> Any:
        result = "failed"
        try:
            answer = await update(*args, **kwargs)
            if answer[0]:
                result = "done"
            return answer
        finally:
            metrics.count(metrics.WEIGHT_UPDATES, kind, result)

    return updated


def end_update(end: Callable[..., Any]) -> Callable[..., Any]:
    """Count the end of an update that takes several requests as one more update."""

    @wraps(end)
    def ended(*args: Any, **kwargs: Any) -> Any:
        _begin_anew()
        return end(*args, **kwargs)

    return ended


def _failure(recv_req: Any, message: str) -> Any:
    """Build the output for a request that failed."""
    return answer(recv_req, success=False, message=message)


def answer(recv_req: Any, **fields: Any) -> Any:
    """Build the output object that belongs to the type of a request."""
    from sglang.srt.managers import io_struct

    name = type(recv_req).__name__.replace("Input", "Output")
    return getattr(io_struct, name)(**fields)


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


def _begin_anew() -> None:
    """Start a new cache namespace, so that no prompt finds KV cache of old weights."""
    _weights.n_updates += 1
    _clear_image_cache()


def _clear_image_cache() -> None:
    """Clear the cached embeddings of images, audio and video."""
    module = import_module(f"sglang.srt.managers.{release.IMAGE_CACHE}")
    if module.embedding_cache is not None:
        module.embedding_cache.clear()
