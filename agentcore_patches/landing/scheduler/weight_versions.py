"""Record the weight version of each token; keep prompts off KV cache of old weights.

The scheduler counts weight updates. When the prefill of a request starts, the count
becomes part of its prefix cache key. The request therefore never finds KV cache that
other weights computed; such entries are evicted as least recently used. Before the
first update, the keys are those of stock SGLang.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from .. import release
from ..shared.decorators import wrapping
from . import loaded_tensors, ranks

if TYPE_CHECKING:
    from sglang.srt.managers.io_struct import (
        LoadLoRAAdapterFromTensorsReqInput,
        LoadLoRAAdapterReqInput,
    )
    from sglang.srt.managers.schedule_batch import Req, ScheduleBatch
    from sglang.srt.managers.scheduler import Scheduler
    from sglang.srt.server_args import ServerArgs


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

    def read_names(self) -> None:
        """Read the names in the checkpoint, once; a model's class knows all of them."""
        if self.checkpoint is not None:
            self.names |= loaded_tensors.names_in_checkpoint(self.checkpoint)
            self.checkpoint = None


weights = _Weights()


def register(scheduler: Scheduler, server_args: ServerArgs) -> None:
    """Register the scheduler of this process and its first weights.

    Raises:
        RuntimeError: another rank of this server does not run the same patches.
    """
    weights.scheduler = scheduler
    weights.version = server_args.weight_version
    weights.checkpoint = server_args.model_path
    if Path(server_args.model_path).is_dir():
        weights.read_names()  # A trainer may overwrite the folder.
    ranks.check()


def set_version(version: str | None) -> None:
    """Set the version of the weights; None keeps the current version."""
    if version is not None:
        weights.version = version


def rename(version: str | None) -> None:
    """Set the version of the weights, in SGLang's own record too; None keeps it."""
    set_version(version)
    # Older releases have no such record.
    record = getattr(weights.scheduler, "record_weight_version_change", None)
    if record is not None:
        record(new_version=version)


@wrapping
def load_adapter(
    load: Callable[..., Any],
    self: Scheduler,
    recv_req: LoadLoRAAdapterReqInput | LoadLoRAAdapterFromTensorsReqInput,
) -> Any:
    """Decorate the scheduler's handler that loads an adapter: set the new version."""
    result = load(self, recv_req)
    if result.success:
        rename(recv_req.weight_version)
    return result


def dispatcher() -> Any:
    """Return a dispatcher for the request that sets the weight version."""
    from sglang.srt.managers.io_struct import UpdateWeightVersionReqInput
    from sglang.utils import TypeBasedDispatcher

    return TypeBasedDispatcher(
        [(UpdateWeightVersionReqInput, lambda req: set_version(req.new_version))]
    )


def record_batch(batch: ScheduleBatch) -> None:
    """Record the weights that a batch is about to run on.

    With overlap scheduling, its result may be handled after the next update.
    """
    batch.weight_version = weights.version


def assign_tokens(batch: ScheduleBatch) -> None:
    """Assign the tokens of the result that is handled next to the weights it ran on.

    A step costs one comparison per request. Only a request whose version changes gets
    a new span, and only such a request is in `unsent` until it is sent.
    """
    version = batch.weight_version or weights.version
    for req in [one for one in batch.reqs if one.weight_version != version]:
        req.weight_version = version
        spans, begin = req.weight_versions, len(req.output_ids)
        if spans and spans[-1][1] == begin:
            spans.pop()  # Its weights have sampled no token.
        spans.append([version, begin if spans else 0])
        # The tokens of a beam search are not the request's own: it has no versions.
        # Older releases have no beam search.
        if getattr(req, "beam_group", None) is None:
            weights.unsent[req.rid] = req


def new_spans(rids: Iterable[str]) -> list[list[Any] | None] | None:
    """Return the version spans of the requests in an output that have new ones."""
    if not weights.unsent:
        return None
    new = {*weights.unsent.keys()}.intersection(rids)
    if not new:
        return None
    return [_spans_to_send(weights.unsent[rid]) if rid in new else None for rid in rids]


def _spans_to_send(req: Req) -> list[Any] | None:
    """Return the spans of the tokens of a request that are sent now, or None.

    The last span may grow: `http.weight_versions.record` extends it with each output.
    """
    spans, n_tokens = req.weight_versions, req.send_token_offset
    ends = [begin for _, begin in spans[1:]] + [n_tokens]
    sent = [
        [version, begin, min(end, n_tokens)]
        for (version, begin), end in zip(spans, ends, strict=True)
        if begin < n_tokens
    ]
    if len(sent) == len(spans):
        del weights.unsent[req.rid]
    if not release.SPANS_ARE_STRUCTS:
        return sent or None
    from sglang.srt.utils.weight_versions import WeightVersionSpan

    return [
        WeightVersionSpan(version=version, start=begin, end=end)
        for version, begin, end in sent
    ] or None


def set_cache_key(req: Req) -> None:
    """Put the weights' namespace into the cache key of a request whose prefill starts.

    A request that already has KV cache keeps its key. A retracted request with input
    embeddings loses its output tokens, and so their versions.
    """
    if not req.output_ids:
        req.weight_versions = []
        req.weight_version = None
    if weights.n_updates:
        own = (req.extra_key or "").removeprefix(req.weights_namespace)
        # It goes first, because SGLang looks for the adapter at the end of the key.
        req.weights_namespace = f"weights {weights.n_updates} {weights.secret}\0"
        req.extra_key = req.weights_namespace + own
