"""Reject a request ID that is in use, and give each request a unique ID in the engine.

A client may choose the ID of its request (`rid`). The scheduler and the detokenizer
look up requests by this ID, and an abort ends every request whose ID starts with the
aborted one. The engine therefore gets the `rid` with a unique suffix. An abort then
reaches only its own request, and a late output cannot reach another one. Two tokenizer
workers may serve one `rid` at a time: the engine tells their requests apart.
"""

from __future__ import annotations

import copy
import uuid
from collections import Counter
from typing import TYPE_CHECKING, Any

from ..shared.decorators import wrapping
from ..shared.request_ids import SEPARATOR, rid_of
from . import exchanges, request_fields

if TYPE_CHECKING:
    from sglang.srt.managers.io_struct import (
        AbortReq,
        BatchStrOutput,
        BatchTokenIDOutput,
        GenerateReqInput,
        TokenizedEmbeddingReqInput,
        TokenizedGenerateReqInput,
    )
    from sglang.srt.managers.tokenizer_manager import ReqState, TokenizerManager

    from .request_fields import EngineRequest


def check(manager: TokenizerManager, obj: EngineRequest) -> str | None:
    """Return why the `rid` of a request, not normalized yet, is rejected; or None."""
    # Before 0.5.10, /tokenize and similar requests come here and have no `rid`.
    is_reserved = exchanges.call_of(obj).suffixes
    if request_fields.read(obj, "rid") is None or is_reserved:
        return None
    normalized = copy.copy(obj)
    try:
        normalized.normalize_batch_and_arguments()
    except ValueError as error:
        return str(error)
    return _find_error(manager, normalized)


def refuse(manager: TokenizerManager, obj: EngineRequest) -> None:
    """Reject a request whose `rid` cannot be used, before SGLang normalizes it."""
    error = check(manager, obj)
    if error is not None:
        raise ValueError(error)


def reserve(manager: TokenizerManager, obj: EngineRequest) -> None:
    """Reserve the IDs of a normalized request until it finishes.

    SGLang 0.5.9 registers an ID only after tokenizing and sending the request. Every
    release drops the ID of a request with `n` > 1 before its samples are generated.

    Raises:
        ValueError: another request has one of the IDs, or an ID is not a string.
    """
    if obj.rid == "":
        obj.regenerate_rid()
    error = _find_error(manager, obj)
    if error is not None:
        raise ValueError(error)
    suffixes = dict.fromkeys(_rids(obj), uuid.uuid4().hex)
    exchanges.note(obj, suffixes=suffixes)
    _all_reserved(manager).update(suffixes)


@wrapping
async def reserving(
    generate: Any, self: TokenizerManager, obj: EngineRequest, *args: Any, **kwargs: Any
) -> Any:
    """Decorate `generate_request`: release the IDs when the request is over."""
    responses = generate(self, obj, *args, **kwargs)
    is_stream = request_fields.read(obj, "stream")
    try:
        async for response in responses:
            if not is_stream:
                _release(self, obj)  # It is the only response.
            yield response
    finally:
        _release(self, obj)
        await responses.aclose()


def _find_error(manager: TokenizerManager, obj: EngineRequest) -> str | None:
    """Return the error in the IDs of a normalized request, None if they are valid."""
    if obj.is_single:
        if obj.rid == "":
            return None  # `reserve` replaces it by a random ID.
        if not isinstance(obj.rid, str):
            kind = type(obj.rid).__name__
            return f"The rid of a single prompt must be a string, not a {kind}."
    rids = _rids(obj)
    if any(not isinstance(rid, str) or not rid for rid in rids):
        return "Each rid of a batch must be a string that is not empty."
    if len(set(rids)) < len(rids):
        twice = sorted(rid for rid, count in Counter(rids).items() if count > 1)
        return f"Duplicate request IDs detected within the request: {twice}"
    for rid in rids:
        if rid in manager.rid_to_state or rid in _all_reserved(manager):
            return f"Duplicate request ID detected: {rid}"
    return None


def _rids(obj: EngineRequest) -> list[Any]:
    """Return the IDs of a normalized request, one for each prompt of a batch."""
    return obj.rid if isinstance(obj.rid, list) else [obj.rid]


def _all_reserved(manager: TokenizerManager) -> dict[str, str]:
    """Return the suffixes of requests in progress, by ID."""
    reserved: dict[str, str] = vars(manager).setdefault("reserved_rids", {})
    return reserved


def _release(manager: TokenizerManager, obj: EngineRequest) -> None:
    reserved = _all_reserved(manager)
    for rid, suffix in exchanges.call_of(obj).suffixes.items():
        if reserved.get(rid) == suffix:
            del reserved[rid]


def for_engine(manager: TokenizerManager, message: Any) -> Any:
    """Replace the `rid`s in a message to the engine by the engine's IDs.

    Args:
        message: a tokenized request, a batch of them, an abort or any other message.
    """
    from sglang.srt.managers import io_struct

    # With --language-only, the image encoders look up a request by its `rid`.
    if manager.server_args.language_only:
        return message
    if isinstance(
        message,
        io_struct.TokenizedGenerateReqInput | io_struct.TokenizedEmbeddingReqInput,
    ):
        return _renamed(manager, message)
    if isinstance(
        message,
        io_struct.BatchTokenizedGenerateReqInput
        | io_struct.BatchTokenizedEmbeddingReqInput,
    ):
        message.batch = [_renamed(manager, request) for request in message.batch]
    elif isinstance(message, io_struct.AbortReq) and not message.abort_all:
        message.rid = _engine_rid(manager, message.rid)
    return message


def _renamed(
    manager: TokenizerManager,
    request: TokenizedGenerateReqInput | TokenizedEmbeddingReqInput,
) -> Any:
    """Copy a tokenized request and give it the engine's ID."""
    state = manager.rid_to_state.get(request.rid)
    if state is not None:
        record(manager, state, request.rid)
    renamed = copy.copy(request)
    renamed.rid = _engine_rid(manager, request.rid)
    return renamed


def record(manager: TokenizerManager, state: ReqState, rid: str) -> None:
    """Record the engine's ID of a request, to recognize its outputs and aborts."""
    exchanges.run_of(state).engine_rid = _new_engine_rid(manager, rid)


def _engine_rid(manager: TokenizerManager, rid: str) -> str:
    """Return the engine's ID of a request.

    For a request of another tokenizer worker, return the start of its ID: an abort
    matches IDs by prefix.
    """
    state = manager.rid_to_state.get(rid)
    kept = None if state is None else exchanges.run_of(state).engine_rid
    return kept or _new_engine_rid(manager, rid)


def _new_engine_rid(manager: TokenizerManager, rid: str) -> str:
    # Samples of `n` > 1 are not reserved: SGLang gives them random IDs.
    return f"{rid}{SEPARATOR}{_all_reserved(manager).get(rid, '')}"


def from_engine(
    manager: TokenizerManager, output: BatchStrOutput | BatchTokenIDOutput
) -> None:
    """Replace the engine's IDs in a batch of outputs by `rid`s.

    A late output keeps the engine's ID. No request has that ID, so SGLang skips it.
    """
    output.rids = [_restored(manager, rid) for rid in output.rids]


def abort_from_engine(manager: TokenizerManager, abort: AbortReq) -> None:
    """Replace the engine's ID in an abort by the `rid`."""
    abort.rid = _restored(manager, abort.rid)


def _restored(manager: TokenizerManager, engine_rid: str) -> str:
    rid = rid_of(engine_rid)
    state = manager.rid_to_state.get(rid)
    if state is not None and exchanges.run_of(state).engine_rid == engine_rid:
        return rid
    return engine_rid


def abort_own(manager: TokenizerManager, rid: str, obj: GenerateReqInput) -> None:
    """Abort the request of a disconnected client, unless its `rid` is reused by now."""
    state = manager.rid_to_state.get(rid)
    suffix = exchanges.call_of(obj).suffixes.get(rid)
    if state is None or suffix is None:
        return
    if exchanges.run_of(state).engine_rid == f"{rid}{SEPARATOR}{suffix}":
        manager.abort_request(rid)
