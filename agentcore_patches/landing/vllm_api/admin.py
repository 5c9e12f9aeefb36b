"""vLLM's control endpoints, mapped to SGLang's.

An endpoint requires the same key as the SGLang endpoint that does its work. An endpoint
that SGLang cannot serve answers 501, and names what to use instead.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import orjson

from ..shared.decorators import wrapping
from .bodies import (
    BadRequest,
    error_response,
    flag,
    is_off,
    json_response,
    read_json,
)

if TYPE_CHECKING:
    from fastapi import FastAPI, Request
    from sglang.srt.managers.io_struct import (
        GenerateReqInput,
        LoadLoRAAdapterReqInput,
        UnloadLoRAAdapterReqInput,
    )
    from sglang.srt.managers.tokenizer_manager import TokenizerManager

    from ..http.answers import Json

# Seconds between two checks whether requests have finished.
_POLL_INTERVAL = 0.05

# Seconds in which the engine releases the requests of a paused server.
_SETTLES_WITHIN = 5.0

_NOT_RESET = (
    "The prefix cache was not reset: requests use it. New weights have their own "
    "cache, so a trainer does not need to reset it."
)

_UPDATING = "The weights are being updated. Try again when that has finished."

_FROM_DISK = (
    'Save the weights and send {"weight_dir": PATH} to /update_weights, or use '
    "SGLang's /update_weights_from_distributed or /update_weights_from_tensor"
)
_NO_PROTOCOL = f"its workers do not have vLLM's protocol for weights. {_FROM_DISK}"

# Endpoints without a counterpart in SGLang.
NOT_SUPPORTED = (
    "/init_weight_transfer_engine",
    "/start_weight_update",
    "/finish_weight_update",
    "/init_broadcaster",
)

# Each path, whose last part is the name of its method in `_Control`, and the SGLang
# endpoint whose key it requires. The paths with /model_info's key are GET.
ROUTES: Mapping[str, str] = {
    "/pause": "pause_generation",
    "/resume": "continue_generation",
    "/is_paused": "model_info",
    "/abort_requests": "abort_request",
    "/reset_prefix_cache": "flush_cache",
    "/sleep": "release_memory_occupation",
    "/wake_up": "resume_memory_occupation",
    "/is_sleeping": "model_info",
    "/get_world_size": "model_info",
    "/load": "model_info",
    "/liveness": "model_info",
    "/weight_info": "model_info",
    "/update_weights": "update_weights_from_disk",
    "/collective_rpc": "update_weights_from_disk",
    "/v1/load_lora_adapter": "load_lora_adapter",
    "/v1/unload_lora_adapter": "unload_lora_adapter",
}


def add_routes(
    app: FastAPI,
    manager: TokenizerManager,
    native: Mapping[str, Callable[..., Awaitable[Any]]],
    abort_running: Callable[[str | None], int],
) -> None:
    """Add vLLM's control endpoints to the server.

    Args:
        abort_running: aborts a request of vLLM's endpoint by its ID, or all of them;
            returns how many it found.
    """
    control = _Control(manager, native, abort_running)
    for path, name in ROUTES.items():
        handle = getattr(control, path.rpartition("/")[2])
        method = "GET" if name == "model_info" else "POST"
        _add_route(app, path, method, native[name], handle)
    for path in NOT_SUPPORTED:
        refuse = partial(_refuse, path)
        _add_route(app, path, "POST", native["update_weights_from_disk"], refuse)


def _add_route(
    app: FastAPI,
    path: str,
    method: str,
    native: Callable[..., Any],
    handle: Callable[[_Call], Awaitable[Any]],
) -> None:
    """Add a route that requires the same key as `native`."""
    from starlette.routing import Route

    async def endpoint(request: Request) -> Any:
        try:
            return json_response(await handle(await _Call.read(request)))
        except ValueError as error:
            return error_response(error)

    # SGLang keeps the key that an endpoint requires as an attribute of the function.
    vars(endpoint).update(vars(native))
    app.router.routes.append(Route(path, endpoint, methods=[method]))


class _Call:
    """A request to a control endpoint: its query and body as one set of fields.

    All methods raise `BadRequest` for a value that they do not accept.
    """

    def __init__(
        self, request: Request, body: dict[str, Any], query: dict[str, list[str]]
    ) -> None:
        single = {name: one for name, [one, *more] in query.items() if not more}
        self.request = request
        self.fields: dict[str, Any] = {**query, **single, **body}
        self._in_query = query.keys() - body.keys()

    @classmethod
    async def read(cls, request: Request) -> _Call:
        """Read a request; a field of the body takes precedence over the query's."""
        query: dict[str, list[str]] = {}
        for name, value in request.query_params.multi_items():
            query.setdefault(name, []).append(value)
        return cls(request, await read_json(request), query)

    def only(self, *names: str) -> None:
        """Reject a request in which any other field is set."""
        for name, value in self.fields.items():
            if name not in names and not is_off(value) and value != "false":
                raise BadRequest(name, f"{name} is not supported here. Omit it.")

    def text(self, name: str, *allowed: str) -> str | None:
        """Return a field as a string: one of `allowed`, if any are given."""
        value = self.fields.get(name)
        if value is None:
            return None
        if isinstance(value, int) and not isinstance(value, bool):
            value = str(value)
        if not isinstance(value, str) or (allowed and value not in allowed):
            what = f"one of {', '.join(allowed)}" if allowed else "a string"
            raise BadRequest(name, f"{name} must be {what}.")
        return value

    def needed(self, name: str) -> str:
        """Return a field as a string; reject the request if it is absent or empty."""
        value = self.text(name)
        if not value:
            raise BadRequest(name, f"{name} is required.")
        return value

    def flag(self, name: str) -> bool | None:
        """Return a boolean field, None if it is absent."""
        value = self.fields.get(name)
        if isinstance(value, str) and value.lower() in ("true", "false", "1", "0"):
            return value.lower() in ("true", "1")
        return None if value is None else flag(name, value)

    def strings(self, name: str) -> list[str] | None:
        """Return a field as a list of strings, None if it is absent.

        Commas separate the strings of a query.
        """
        value = self.fields.get(name)
        if value is None:
            return None
        value = [value] if isinstance(value, str) else value
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            raise BadRequest(name, f"{name} must be a list of strings.")
        if name in self._in_query:
            value = [part for one in value for part in one.split(",") if part]
        return value


async def _refuse(path: str, call: _Call) -> Json:
    message = f"{path} is not supported on SGLang: {_NO_PROTOCOL}."
    raise BadRequest(None, message, status=501)


class _Control:
    """The endpoints; each takes a request and returns the JSON of its answer."""

    def __init__(
        self,
        manager: TokenizerManager,
        native: Mapping[str, Callable[..., Awaitable[Any]]],
        abort_running: Callable[[str | None], int],
    ) -> None:
        self._manager = manager
        self._native = native
        self._abort_running = abort_running
        self._asleep: set[str] = set()
        self._naming = asyncio.Lock()
        self._contents: dict[str, list[Any]] = {}

    async def pause(self, call: _Call) -> Json:
        """Pause: abort requests, wait for them, or keep them where they are."""
        call.only("mode", "clear_cache", "wait_for_inflight_requests")
        mode = call.text("mode", "abort", "wait", "keep")
        if mode is None:
            mode = "wait" if call.flag("wait_for_inflight_requests") else "abort"
        clear = call.flag("clear_cache")
        lock = self._manager.model_update_lock
        if clear and mode == "keep" and await lock.is_locked():
            reason = _UPDATING if lock._writer_active else _NOT_RESET
            raise BadRequest("clear_cache", reason)
        async with self._paused(mode):
            if clear or (clear is None and mode != "keep"):
                await self._flush("clear_cache")
        return {"status": "paused"}

    @asynccontextmanager
    async def _paused(self, mode: str) -> AsyncIterator[None]:
        """Pause, and resume if an error follows."""
        was_paused = self._manager.is_pause
        await self._pause(mode)
        try:
            yield
        except ValueError:
            if not was_paused:
                await self._resume()
            raise

    async def _pause(self, mode: str) -> None:
        from sglang.srt.managers.io_struct import PauseGenerationReqInput

        if mode == "wait":
            await self._drain()
        native_mode = "in_place" if mode == "keep" else "abort"
        await self._manager.pause_generation(PauseGenerationReqInput(mode=native_mode))

    async def _drain(self) -> None:
        """Hold new requests back, and wait until the others have finished."""
        manager = self._manager
        if manager.server_args.tokenizer_worker_num > 1:
            raise BadRequest(
                "mode",
                "mode=wait is not supported with several tokenizer workers, which do "
                "not know each other's requests. Use abort or keep.",
            )
        async with manager.is_pause_cond:
            if not is_held(manager):
                vars(manager)["pause_mode"] = "wait"
            manager.is_pause = True
        lock = manager.model_update_lock
        while await lock.is_locked():
            if not manager.is_pause:
                raise BadRequest(
                    "mode", "Generation was resumed before all requests had finished."
                )
            if is_held(manager):
                raise BadRequest(
                    "mode",
                    _UPDATING
                    if lock._writer_active
                    else "Generation is paused, so open requests cannot finish. Resume "
                    "it first, or pause with mode=abort.",
                )
            await asyncio.sleep(_POLL_INTERVAL)

    async def _flush(self, field: str | None) -> None:
        """Flush the prefix cache, once the engine has released finished requests."""
        deadline = time.monotonic() + _SETTLES_WITHIN
        while not (await self._manager.flush_cache()).success:
            is_busy = await self._manager.model_update_lock.is_locked()
            if is_busy or time.monotonic() > deadline:
                raise BadRequest(field, _NOT_RESET)
            await asyncio.sleep(_POLL_INTERVAL)

    async def resume(self, call: _Call) -> Json:
        """Continue to generate."""
        call.only()
        await self._resume()
        return {"status": "resumed"}

    async def _resume(self) -> None:
        from sglang.srt.managers.io_struct import ContinueGenerationReqInput

        await self._manager.continue_generation(ContinueGenerationReqInput())

    async def is_paused(self, call: _Call) -> Json:
        """Return whether generation is paused."""
        return {"is_paused": self._manager.is_pause}

    async def abort_requests(self, call: _Call) -> Json:
        """Abort the requests with these IDs, or all of them."""
        from sglang.srt.managers.io_struct import AbortReq

        call.only("request_ids")
        request_ids = call.strings("request_ids")
        if request_ids is None:
            n_aborted = n_open(self._manager)
            everything = AbortReq(abort_all=True)
            await self._native["abort_request"](everything, call.request)
            self._abort_running(None)
            return {"status": "aborted", "aborted": n_aborted}
        n_aborted = 0
        for request_id in request_ids:
            n_found = self._abort_running(request_id)
            if not n_found:
                # The request belongs to another endpoint or tokenizer worker.
                n_found = int(request_id in self._manager.rid_to_state)
                other = AbortReq(rid=request_id)
                await self._native["abort_request"](other, call.request)
            n_aborted += n_found
        return {"status": "aborted", "aborted": n_aborted}

    async def reset_prefix_cache(self, call: _Call) -> Json:
        """Flush the prefix cache."""
        call.only("reset_running_requests", "reset_external")
        for name in ("reset_running_requests", "reset_external"):
            if call.flag(name):
                raise BadRequest(name, f"{name} is not supported on SGLang. Omit it.")
        await self._flush(None)
        return {"success": True}

    async def sleep(self, call: _Call) -> Json:
        """Pause, and release the memory of weights and KV cache."""
        from sglang.srt.managers.io_struct import ReleaseMemoryOccupationReqInput

        call.only("level", "tags", "mode")
        # As in vLLM. SGLang would also release CUDA graphs, which /wake_up never names.
        tags = self._tags(call) or ["kv_cache", "weights"]
        level = call.text("level", "0", "1", "2") or "1"
        mode = call.text("mode", "abort", "wait", "keep") or "abort"
        server_args = self._manager.server_args
        if level == "0":
            await self._pause(mode)
            return {"status": "sleeping"}
        if mode == "keep":
            raise BadRequest(
                "mode", "SGLang cannot keep requests whose memory is released."
            )
        if not server_args.enable_memory_saver:
            raise BadRequest(
                None,
                "This server cannot sleep. Start it with --enable-memory-saver.",
            )
        keeps_weights = server_args.enable_weights_cpu_backup
        if level == "1" and "weights" in tags and not keeps_weights:
            raise BadRequest(
                "level",
                "Level 1 keeps the weights, and this server drops them. Start it with "
                "--enable-weights-cpu-backup, or send level=2 and update the weights.",
            )
        async with self._paused(mode):
            deadline = time.monotonic() + _SETTLES_WITHIN
            while True:
                obj = ReleaseMemoryOccupationReqInput(tags=tags)
                try:
                    await self._call("release_memory_occupation", obj, call)
                    break
                except ValueError:
                    # With overlap scheduling, a step may run after the last answer.
                    if time.monotonic() > deadline:
                        raise
                await asyncio.sleep(_POLL_INTERVAL)
        self._asleep |= {*tags}
        return {"status": "sleeping"}

    async def wake_up(self, call: _Call) -> Json:
        """Resume memory; generate again once all of it is resumed."""
        from sglang.srt.managers.io_struct import ResumeMemoryOccupationReqInput

        call.only("tags")
        tags = self._tags(call) or sorted(self._asleep)
        if tags:
            obj = ResumeMemoryOccupationReqInput(tags=tags)
            await self._call("resume_memory_occupation", obj, call)
        self._asleep -= {*tags}
        if not self._asleep:
            await self._resume()
        return {"status": "awake"}

    async def is_sleeping(self, call: _Call) -> Json:
        """Return whether memory is released."""
        return {"is_sleeping": bool(self._asleep)}

    def _tags(self, call: _Call) -> list[str] | None:
        tags = call.strings("tags")
        known = ("weights", "kv_cache", "cuda_graph")
        for tag in tags or ():
            if tag not in known:
                raise BadRequest("tags", f"tags must be of {', '.join(known)}.")
        return tags

    async def _call(self, name: str, obj: Any, call: _Call) -> None:
        """Call SGLang's endpoint; its error becomes a `BadRequest`."""
        response = await self._native[name](obj, call.request)
        # Some endpoints return a plain object if they succeed.
        status = getattr(response, "status_code", 200)
        if status >= 400:
            content = orjson.loads(response.body)
            error = content.get("error", content)
            message = error
            if isinstance(error, dict):
                message = error.get("error_message") or error.get("message")
            raise BadRequest(None, str(message), status)

    async def get_world_size(self, call: _Call) -> Json:
        """Return the number of GPUs."""
        call.only("include_dp")
        server_args = self._manager.server_args
        world_size = server_args.tp_size * server_args.pp_size
        # With data-parallel attention, its ranks are part of the tensor-parallel ones.
        is_inside = server_args.enable_dp_attention
        if call.flag("include_dp") is not False and not is_inside:
            world_size *= server_args.dp_size
        return {"world_size": world_size}

    async def load(self, call: _Call) -> Json:
        """Return the number of open requests of this process."""
        return {"server_load": n_open(self._manager)}

    async def liveness(self, call: _Call) -> Json:
        """Answer while the process is alive."""
        return {"status": "ok"}

    async def weight_info(self, call: _Call) -> Json:
        """Return the version of the weights."""
        info = await self._native["model_info"]()
        return {"weight_version": info["weight_version"]}

    async def update_weights(self, call: _Call) -> Json:
        """Update the weights from a folder, as prime-rl requests it."""
        if not isinstance(call.fields.get("weight_dir"), str):
            name = "weight_dir" if "weight_dir" in call.fields else "update_info"
            message = f"{name} is not supported on SGLang: {_NO_PROTOCOL}."
            raise BadRequest(name, message, status=501)
        call.only("weight_dir", "weight_version")
        return await self._from_disk(
            call.needed("weight_dir"), call.text("weight_version"), call
        )

    async def _from_disk(self, folder: str, version: str | None, call: _Call) -> Json:
        """Update the weights from a folder; its name is the default for the version.

        A folder whose files have changed since its last update gets another name.
        """
        from sglang.srt.managers.io_struct import UpdateWeightFromDiskReqInput

        manager = self._manager
        model_name = manager.served_model_name
        async with self._naming:
            name, contents = PurePath(folder).name, _contents(folder)
            known = self._contents.get(name)
            if known is None:
                current = (await self.weight_info(call))["weight_version"]
                known = [None] if current == name else []
            if contents not in known:
                known = [*known, contents]
            number = known.index(contents) + 1
            obj = UpdateWeightFromDiskReqInput(
                model_path=folder,
                weight_version=version or (name if number == 1 else f"{name}#{number}"),
            )
            await self._call("update_weights_from_disk", obj, call)
            if version is None:
                self._contents[name] = known
        # In vLLM, the model keeps the name that clients send.
        manager.served_model_name = model_name
        return {"status": "ok", "weight_version": obj.weight_version}

    async def collective_rpc(self, call: _Call) -> Json:
        """Reload weights from a folder; SGLang's workers have no other methods."""
        method = call.needed("method")
        if method != "reload_weights":
            raise BadRequest(
                "method",
                f"/collective_rpc: SGLang's workers have no method {method!r}. "
                f"{_FROM_DISK}.",
                status=501,
            )
        call.only("method", "kwargs", "timeout")
        kwargs: Any = call.fields.get("kwargs")
        options = _Call(call.request, kwargs if isinstance(kwargs, dict) else {}, {})
        name = "is_checkpoint_format"
        options.only("weights_path", name)
        if options.flag(name) is False:
            raise BadRequest(name, f"{name} must be true on SGLang.")
        await self._from_disk(options.needed("weights_path"), None, call)
        return {"results": [None]}

    async def load_lora_adapter(self, call: _Call) -> Json:
        """Load a LoRA adapter; `load_inplace` replaces one of the same name."""
        from sglang.srt.managers.io_struct import LoadLoRAAdapterReqInput

        call.only("lora_name", "lora_path", "load_inplace", "pinned", "weight_version")
        obj = LoadLoRAAdapterReqInput(
            lora_name=call.needed("lora_name"),
            lora_path=call.needed("lora_path"),
            pinned=bool(call.flag("pinned")),
            weight_version=call.text("weight_version"),
        )
        is_loaded = obj.lora_name in loaded_adapters(self._manager)
        if is_loaded and not call.flag("load_inplace"):
            raise BadRequest(
                "load_inplace",
                f"The adapter {obj.lora_name!r} is already loaded. Send load_inplace: "
                "true to replace it.",
            )
        await self._call("load_lora_adapter", obj, call)
        return {"success": True, "loaded_adapters": loaded_adapters(self._manager)}

    async def unload_lora_adapter(self, call: _Call) -> Json:
        """Unload a LoRA adapter."""
        from sglang.srt.managers.io_struct import UnloadLoRAAdapterReqInput

        call.only("lora_name", "lora_int_id")
        obj = UnloadLoRAAdapterReqInput(lora_name=call.needed("lora_name"))
        await self._call("unload_lora_adapter", obj, call)
        # SGLang would load it again for the next request that names it.
        self._manager.lora_ref_cache.pop(obj.lora_name, None)
        return {"success": True, "loaded_adapters": loaded_adapters(self._manager)}


def _contents(folder: str) -> list[Any]:
    """Return the names, sizes and times of a folder's files, to compare contents."""
    try:
        files = [(entry.name, entry.stat()) for entry in os.scandir(folder)]
    except OSError:
        return []  # The update fails, or names a model on the Hub.
    return sorted((name, s.st_ino, s.st_size, s.st_mtime_ns) for name, s in files)


def loaded_adapters(manager: TokenizerManager) -> dict[str, str]:
    """Return the paths of the loaded adapters, by name."""
    if not manager.server_args.enable_lora:
        return {}
    adapters = manager.lora_registry.get_all_adapters()
    return {one.lora_name: one.lora_path for one in adapters.values()}


def n_open(manager: TokenizerManager) -> int:
    """Return the number of open requests, without SGLang's checks of its health."""
    rids: list[str] = [*manager.rid_to_state]
    return sum(not rid.startswith("HEALTH_CHECK") for rid in rids)


def is_held(manager: TokenizerManager) -> bool:
    """True while a pause keeps open requests from finishing."""
    mode = vars(manager).get("pause_mode", "abort")
    return manager.is_pause and mode not in ("abort", "wait")


@wrapping
async def replacing(
    load: Callable[..., Awaitable[Any]],
    self: TokenizerManager,
    obj: LoadLoRAAdapterReqInput,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Decorate `load_lora_adapter`: replace a loaded adapter of the same name.

    SGLang rejects such a name. New requests of the adapter wait meanwhile.
    """
    if obj.lora_name not in loaded_adapters(self):
        return await load(self, obj, *args, **kwargs)
    from sglang.srt.managers.io_struct import UnloadLoRAAdapterReqInput

    async with _changed(self, obj.lora_name):
        old = UnloadLoRAAdapterReqInput(lora_name=obj.lora_name)
        result = await self.unload_lora_adapter(old)
        if result.success:
            result = await load(self, obj, *args, **kwargs)
        return result


@wrapping
async def unloading(
    unload: Callable[..., Awaitable[Any]],
    self: TokenizerManager,
    obj: UnloadLoRAAdapterReqInput,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Decorate the method that unloads an adapter: wait for the adapter's requests.

    SGLang waits for them, too, but for as long as they are paused.
    """
    async with _changed(self, obj.lora_name):
        registry = self.lora_registry
        adapter = registry.get_all_adapters().get(obj.lora_name)
        while adapter is not None and registry._counters[adapter.lora_id].value():
            if is_held(self):
                raise ValueError(
                    f"The adapter {obj.lora_name!r} was not unloaded: its requests "
                    "are paused. Resume generation, or abort them."
                )
            await asyncio.sleep(_POLL_INTERVAL)
        return await unload(self, obj, *args, **kwargs)


@asynccontextmanager
async def _changed(manager: TokenizerManager, name: str) -> AsyncIterator[None]:
    """Let new requests of an adapter wait."""
    changes = _changes(manager)
    changes[name] += 1
    try:
        # Let requests that did not wait look up the adapter first.
        await asyncio.sleep(_POLL_INTERVAL)
        yield
    finally:
        changes[name] -= 1


def _changes(manager: TokenizerManager) -> Counter[str]:
    """Return the number of changes of each adapter that are under way."""
    changes: Counter[str] = vars(manager).setdefault("adapter_changes", Counter())
    return changes


@wrapping
async def resolving(
    resolve: Callable[..., Awaitable[Any]],
    self: TokenizerManager,
    obj: GenerateReqInput,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Decorate the method that looks up a request's adapters: wait for new ones."""
    named = obj.lora_path or []
    changes = _changes(self)
    while any(changes[one] for one in ([named] if isinstance(named, str) else named)):
        await asyncio.sleep(_POLL_INTERVAL)
    return await resolve(self, obj, *args, **kwargs)


def config(manager: TokenizerManager) -> dict[str, Any]:
    """Return the parts of vLLM's configuration that trainers read in `/server_info`."""
    server_args = manager.server_args
    parallel = {
        "tensor_parallel_size": server_args.tp_size,
        "pipeline_parallel_size": server_args.pp_size,
        "data_parallel_size": server_args.dp_size,
    }
    return {"parallel_config": parallel, "weight_transfer_config": None}
