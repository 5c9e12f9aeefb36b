"""Report the weight version of each token; make updates wait for each other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from .. import release
from ..shared.decorators import wrapping
from . import exchanges, metrics

if TYPE_CHECKING:
    from sglang.srt.entrypoints.openai.serving_base import OpenAIServingBase
    from sglang.srt.managers.io_struct import (
        BatchStrOutput,
        LoadLoRAAdapterFromTensorsReqInput,
        LoadLoRAAdapterReqInput,
    )
    from sglang.srt.managers.tokenizer_manager import ReqState, TokenizerManager

    from .request_fields import ApiRequest

# Seconds between two checks whether generation was paused while an update waits.
_POLL_INTERVAL = 0.05


# SGLang's version of weights that nobody named. Readers of the top-level field expect
# a trainer's version, often a number.
_NO_VERSION = "default"


@wrapping
async def name_adapter(
    load: Callable[..., Any],
    self: TokenizerManager,
    obj: LoadLoRAAdapterReqInput | LoadLoRAAdapterFromTensorsReqInput,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Decorate the methods that load an adapter: record the version of the request."""
    result = await load(self, obj, *args, **kwargs)
    if result.success:
        self._update_weight_version_if_provided(obj.weight_version)
    return result


def record(
    state: ReqState, meta_info: dict[str, Any], output: BatchStrOutput, index: int
) -> None:
    """Store the weight versions of a request, and add them to its `meta_info`."""
    run = exchanges.run_of(state)
    # Outputs of embeddings have no such column.
    column = getattr(output, "weight_versions", None)
    if column is not None and column[index] is not None:
        spans = column[index]
        if release.SPANS_ARE_STRUCTS:
            spans = [[span.version, span.start, span.end] for span in spans]
        run.weight_versions = spans
    if run.weight_versions:
        run.weight_versions[-1][2] = output.completion_tokens[index]
        report(run, meta_info)


def report(run: exchanges.Run, meta_info: dict[str, Any]) -> None:
    """Add the weight versions of a request's tokens to the `meta_info` of an output."""
    spans = run.weight_versions
    if spans:
        meta_info["weight_version"] = spans[-1][0]
    if meta_info["finish_reason"]:
        if len(spans) > 1:
            metrics.count(metrics.MIXED_REQUESTS)
        meta_info["weight_versions"] = [
            {"version": version, "start": begin, "end": end}
            for version, begin, end in spans
        ]


@wrapping
def add_to_response(
    build: Any,
    self: OpenAIServingBase,
    request: ApiRequest,
    ret: list[Any],
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Decorate the builder of non-streaming responses: add weight versions.

    `return_token_ids: false` keeps a chat response as it is, unless versions are
    requested. A completion has them if versions or token IDs are requested.
    """
    answer = build(self, request, ret, *args, **kwargs)
    if not hasattr(answer, "choices"):
        return answer  # It is an error.
    is_chat = hasattr(request, "messages")
    wanted = request.return_token_ids or request.return_weight_versions
    if wanted or (is_chat and request.return_token_ids is not False):
        meta_info = ret[0]["meta_info"]
        if meta_info["weight_version"] != _NO_VERSION:
            answer.weight_version = meta_info["weight_version"]
        answer.metadata = {
            **(answer.metadata or {}),
            "weight_versions": meta_info.get("weight_versions", []),
        }
    return answer


def update_lock(manager: TokenizerManager) -> Any:
    """Return the lock that one weight update at a time holds while no request runs.

    The lock does not wait for paused requests, since they do not run. A tokenizer
    worker may learn of a pause while an update is already waiting.
    """
    from sglang.srt.utils.aio_rwlock import RWLock

    one_update = asyncio.Lock()

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
                async with one_update:
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


@wrapping
async def counted(update: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Decorate the tokenizer manager's methods that update weights: count updates."""
    kind = update.__name__.rpartition("_")[2]
    result = "failed"
    try:
        answer = await update(*args, **kwargs)
        if answer[0]:
            result = "done"
        return answer
    finally:
        metrics.count(metrics.WEIGHT_UPDATES, kind, result)
