"""vLLM's token-in, token-out endpoint, for trainers written for it.

`POST /inference/v1/generate` becomes one request to the engine, as `/generate` makes
it: the same checks, request IDs, weight versions and aborts apply. Only the names of
request and response are vLLM's.
"""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from .. import release
from ..http import (
    adapters,
    defaults,
    images,
    logprobs,
    prompts,
    request_fields,
    routed_experts,
    streams,
)
from ..http.choices import Choice
from ..shared.decorators import wrapping
from . import aborts, admin, content_parts, rendering
from .bodies import (
    BadRequest,
    error_content,
    error_response,
    find_stop_reason,
    flag,
    in_vllm_order,
    integer,
    is_off,
    json_response,
    read_json,
)
from .sampling import Sampling, translate

if TYPE_CHECKING:
    from fastapi import FastAPI, Request
    from sglang.srt.entrypoints.openai.protocol import TokenizeRequest
    from sglang.srt.entrypoints.openai.serving_chat import OpenAIServingChat
    from sglang.srt.entrypoints.openai.serving_tokenize import OpenAIServingTokenize
    from sglang.srt.managers.io_struct import GenerateReqInput
    from sglang.srt.managers.tokenizer_manager import TokenizerManager

    from ..http.answers import Json

PATH = "/inference/v1/generate"

EXPERTS = "AGENTCORE_VLLM_EXPERTS"
"""The variable that names the shape of routed experts; clients differ."""

SHAPES = ("npy", "object", "nested")
"""A `.npy` file (vLLM, vime), an object (verifiers, prime-rl), lists (SkyRL)."""

_READ = (
    "token_ids",
    "sampling_params",
    "content_parts",
    "model",
    "request_id",
    "stream",
    "stream_options",
    "return_token_ids",
    "return_prompt_token_ids",
    "output_mode",
    "cache_salt",
    "priority",
    "reasoning_ended",
    # Written by the endpoint that renders chats; only its reader needs it.
    "token_offsets",
)

_LONGEST_SALT = 1_024

# A longer response, in tokens, is written in a thread: it takes milliseconds, during
# which the event loop would serve no other request.
_LONG = 1_000

# vLLM's lowest logprob. SGLang has -3.4e38 for a token that a grammar forbids.
_LOWEST = -9999.0


class Job(NamedTuple):
    """A request of the endpoint, checked.

    Attributes:
        obj: the request to the engine.
        sampling: what the response must contain of logprobs and experts.
        model: the client's name of the model.
        wants_prompt: the response repeats the prompt's token IDs.
        wants_text: the response has text, too.
        usage: a stream's usage: "" for none, "last" or "each".
    """

    obj: GenerateReqInput
    sampling: Sampling
    request_id: str
    model: str
    token_ids: list[int]
    n_images: int
    wants_prompt: bool
    wants_text: bool
    usage: str


def shape() -> str:
    """Return the shape of routed experts in responses."""
    name = os.environ.get(EXPERTS) or SHAPES[0]
    if name not in SHAPES:
        raise ValueError(
            f"{EXPERTS} is {name!r}, and must be one of {', '.join(SHAPES)}. Correct "
            "or unset it."
        )
    return name


def add_routes(
    app: FastAPI,
    manager: TokenizerManager,
    scheduler_info: dict[str, Any],
    native: Iterable[Callable[..., Awaitable[Any]]],
) -> None:
    """Add the endpoint and vLLM's control endpoints to the server.

    Args:
        scheduler_info: /server_info returns everything in it.
        native: SGLang's own endpoints that do the work of vLLM's.
    """
    shape()  # Not every launcher of SGLang's app calls `server.check_environment`.
    running: dict[str, Job] = {}

    async def generate(request: Request) -> Any:
        job = None
        try:
            job = read(manager, request, await read_json(request))
            if job.obj.stream:
                return await answer_stream(manager, job, request, running)
            return await answer_whole(manager, job, request, running)
        except ValueError as error:
            if job is not None:
                aborts.forget_unsent(manager, job)
            if isinstance(error, images.PromptError):
                error = BadRequest("token_ids", f"token_ids {error.text}")
            return error_response(error)

    async def render(request: Request) -> Any:
        try:
            body = await read_json(request)
            rendered = await rendering.render(manager, request, body)
            job = read(manager, request, rendered)
            rendering.verify(manager, job.sampling.params)
            return json_response(rendered)
        except ValueError as error:
            return error_response(error)

    open_jobs = aborts.Aborts(manager, running)
    app.router.add_route(PATH, generate, methods=["POST"])
    app.router.add_route(rendering.PATH, render, methods=["POST"])
    scheduler_info["vllm_config"] = admin.config(manager)
    by_name = {endpoint.__name__: endpoint for endpoint in native}
    admin.add_routes(app, manager, by_name, open_jobs.start)


def read(
    manager: TokenizerManager,
    request: Request,
    body: dict[str, Any],
) -> Job:
    """Read and check a request of the endpoint."""
    for name, value in body.items():
        if name in _READ or is_off(value):
            continue
        instead = "Send images as content_parts" if name == "features" else "Omit it"
        raise BadRequest(name, f"{name} is not supported on SGLang. {instead}.")
    token_ids = body.get("token_ids")
    if not isinstance(token_ids, list):
        raise BadRequest("token_ids", "token_ids must be a list of integers.")
    error = prompts.check_token_ids(manager, token_ids, "token_ids")
    if error is not None:
        raise BadRequest("token_ids", error)
    mode = body.get("output_mode") or "tokens"
    if mode not in ("tokens", "text"):
        raise BadRequest("output_mode", 'output_mode must be "tokens" or "text".')
    if mode == "text" and manager.server_args.skip_tokenizer_init:
        raise BadRequest(
            "output_mode",
            'output_mode "text" needs a tokenizer, but the server runs with '
            "--skip-tokenizer-init. Omit it.",
        )
    sampling = translate(manager, body.get("sampling_params"), mode == "text")
    most = sampling.params["max_new_tokens"]
    left = manager.context_len - manager.num_reserved_tokens - len(token_ids)
    if most is not None and most >= left:
        sampling.params["max_new_tokens"] = None  # Fills the context, as in vLLM.
    model, adapter = _model(manager, request, body.get("model"))
    request_id = _request_id(body, request)
    urls = content_parts.read(manager, body.get("content_parts"))
    obj = _engine_request(manager, body, request, token_ids, sampling)
    if urls:
        obj.image_data = urls
        # SGLang expands the placeholders of images.
        obj.return_prompt_token_ids = True
    job = Job(
        obj=obj,
        sampling=sampling,
        request_id=request_id,
        model=model,
        token_ids=token_ids,
        n_images=len(urls),
        wants_prompt=_wants_prompt(body),
        wants_text=mode == "text",
        usage=_usage_of_stream(body.get("stream_options")),
    )
    job.obj.rid = request_id
    job.obj.lora_path = adapter
    error = prompts.check_generate(manager, job.obj)
    if error is not None:
        raise ValueError(error)
    return job


def _engine_request(
    manager: TokenizerManager,
    body: dict[str, Any],
    request: Request,
    token_ids: list[int],
    sampling: Sampling,
) -> GenerateReqInput:
    from sglang.srt.managers.io_struct import GenerateReqInput

    wanted = (sampling.logprobs, sampling.prompt_logprobs)
    obj = GenerateReqInput(
        input_ids=token_ids,
        sampling_params=sampling.params,
        stream=flag("stream", body.get("stream")),
        return_logprob=wanted != (None, None),
        logprob_start_len=-1 if sampling.prompt_logprobs is None else 0,
        # With `logprobs: 0`, the likeliest token shows the rank of the sampled one.
        top_logprobs_num=max(
            sampling.logprobs or int(sampling.logprobs == 0),
            sampling.prompt_logprobs or 0,
        ),
        extra_key=_salt(body.get("cache_salt")),
        priority=_priority(manager, body.get("priority")),
        routing_key=request.headers.get("x-session-id"),
    )
    for field, first, value in (
        ("sampling_mask_logprobs", "0.5.21", ("sampling_logprobs_mode", "support")),
        ("sampling_mask", "0.5.16", ("return_sampling_mask", True)),
    ):
        if field not in sampling.masks:
            continue
        if not hasattr(obj, value[0]):
            name = f"return_{field}"
            raise BadRequest(
                name,
                f"sampling_params: {name} is not supported by this SGLang. It needs "
                f"SGLang {first} or later.",
            )
        setattr(obj, *value)
    if body.get("reasoning_ended") is not None:
        obj.require_reasoning = not flag("reasoning_ended", body["reasoning_ended"])
    rank = request.headers.get("x-data-parallel-rank")
    if rank is not None:
        setattr(obj, release.DP_RANK, _rank(manager, rank))
    # vLLM also decides this by a launch option, not by a request field.
    if manager.server_args.enable_return_routed_experts:
        obj.return_routed_experts = True
        obj.routed_experts_start_len = sampling.experts_start
    return obj


def _model(
    manager: TokenizerManager, request: Request, model: Json
) -> tuple[str, str | None]:
    """Return the model's name in the response, and the LoRA adapter that it names."""
    from fastapi import HTTPException

    if model is None:
        return manager.served_model_name, None
    if not isinstance(model, str):
        raise BadRequest("model", "model must be a string.")
    if manager.server_args.enable_lora:
        chat: OpenAIServingChat = request.app.state.openai_serving_chat
        try:
            return model, chat._resolve_lora_path(model, None)
        except HTTPException as error:
            raise BadRequest("model", error.detail, error.status_code) from error
    # An update from disk renames the model to a path, in one of the workers only.
    is_path = manager.server_args.tokenizer_worker_num > 1 and "/" in model
    if is_path or model in adapters.base_names(manager):
        return model, None
    raise BadRequest(
        "model", f"The model {model!r} does not exist: see /v1/models.", status=404
    )


def _request_id(body: dict[str, Any], request: Request) -> str:
    """Return the ID of a request: the client's, or a random one."""
    request_id = body.get("request_id")
    if request_id is None:
        return request.headers.get("x-request-id") or uuid.uuid4().hex
    if not isinstance(request_id, str) or not request_id:
        raise BadRequest("request_id", "request_id must be a string, not empty.")
    return request_id


def _salt(salt: Json) -> str | None:
    if salt is None:
        return None
    if not isinstance(salt, str) or not 1 <= len(salt) <= _LONGEST_SALT:
        raise BadRequest(
            "cache_salt",
            f"cache_salt must be a string of 1 to {_LONGEST_SALT} characters.",
        )
    return salt


def _priority(manager: TokenizerManager, priority: Json) -> int | None:
    if priority is None:
        return None
    value = integer("priority", priority, -request_fields.INT64, request_fields.INT64)
    if manager.server_args.enable_priority_scheduling:
        return in_vllm_order(manager, value)
    if value:
        raise BadRequest(
            "priority",
            "priority is not supported by this server. Start it with "
            "--enable-priority-scheduling, or omit the field.",
        )
    return None


def _rank(manager: TokenizerManager, rank: str) -> int:
    ranks = manager.server_args.dp_size
    if not (rank.isdecimal() and int(rank) < ranks):
        raise BadRequest(
            "X-data-parallel-rank",
            f"X-data-parallel-rank must be from 0 to {ranks - 1} on this server.",
        )
    return int(rank)


def _wants_prompt(body: dict[str, Any]) -> bool:
    """True if a request asks for token IDs, and does not leave out the prompt's."""
    name = "return_prompt_token_ids"
    value = body.get(name)
    wanted = defaults.values().get(name) if value is None else flag(name, value)
    has_ids = flag("return_token_ids", body.get("return_token_ids"))
    return has_ids and wanted is not False


def _usage_of_stream(options: Json) -> str:
    if options is None:
        return ""
    name = "stream_options"
    if not isinstance(options, dict):
        raise BadRequest(name, f"{name} must be an object.")
    known = ("include_usage", "continuous_usage_stats")
    for option, value in options.items():
        if option not in known and not is_off(value):
            raise BadRequest(name, f"{name}: {option} is not supported. Omit it.")
    include, each = (flag(option, options.get(option)) for option in known)
    return ("each" if each else "last") if include else ""


async def answer_whole(
    manager: TokenizerManager, job: Job, request: Request, running: dict[str, Job]
) -> Any:
    """Generate, and answer in one piece."""
    from fastapi import Response

    running[job.request_id] = job
    try:
        items = await manager.generate_request(job.obj, request).__anext__()
    finally:
        running.pop(job.request_id, None)
    if not isinstance(items, list):
        items = [items]
    if job.sampling.logprobs is not None:
        logprobs.cut(items)
    n_tokens = sum(len(item["output_ids"]) for item in items)
    if job.sampling.prompt_logprobs is not None:
        n_tokens += len(job.token_ids)
    if n_tokens > _LONG:
        content = await asyncio.to_thread(_whole, manager, job, items)
    else:
        content = _whole(manager, job, items)
    return Response(content, media_type="application/json")


def _whole(manager: TokenizerManager, job: Job, items: list[dict[str, Any]]) -> bytes:
    """Write a response in one piece."""
    first, count = items[0]["meta_info"], job.sampling.prompt_logprobs
    body = {
        "request_id": job.request_id,
        "model": job.model,
        "created": int(time.time()),
        "output_mode": "text" if job.wants_text else "tokens",
        "choices": [
            {
                "index": index,
                **_piece(job, item, item["output_ids"], item["meta_info"]),
                **_end(manager, job, item["meta_info"]),
            }
            for index, item in enumerate(items)
        ],
        "usage": _usage([item["meta_info"] for item in items]),
        "prompt_logprobs": None if count is None else prompt_logprobs(count, first),
        **_prompt(manager, job, items[0]),
        "kv_transfer_params": None,
        "ec_transfer_params": None,
    }
    return orjson.dumps(body)


def _piece(
    job: Job, item: dict[str, Any], token_ids: list[int], lists: dict[str, Any]
) -> dict[str, Any]:
    """Return the fields of some tokens of a choice.

    Args:
        lists: the engine's lists with an entry for each of these tokens.
    """
    reason = item["meta_info"]["finish_reason"]
    fields: dict[str, Any] = {
        "token_ids": token_ids,
        "finish_reason": reason and reason["type"],
        "logprobs": None,
    }
    if job.wants_text:
        fields["text"] = item["text"]
    count = job.sampling.logprobs
    if count is not None:
        rows = lists.get("output_token_logprobs") or []
        tops = lists.get("output_top_logprobs")
        fields["logprobs"] = {"content": entries(rows, tops, count)}
    for name, key in job.sampling.masks.items():
        fields[name] = masks = (lists.get(key) or [])[: len(token_ids)]
        if len(masks) < len(token_ids):
            raise ValueError(
                f"The engine gave {len(masks)} sampling masks for {len(token_ids)} "
                "tokens."
            )
    return fields


def _end(
    manager: TokenizerManager, job: Job, meta_info: dict[str, Any]
) -> dict[str, Any]:
    """Return the fields that only a finished choice has."""
    ignores_eos = bool(job.sampling.params.get("ignore_eos"))
    fields = {
        "stop_reason": find_stop_reason(manager, ignores_eos, meta_info),
        "weight_versions": meta_info.get("weight_versions"),
    }
    encoded = meta_info.get("routed_experts")
    if encoded is not None:
        start = meta_info.get("routed_experts_start_len", 0)
        fields["routed_experts"] = routed_experts.in_shape(
            manager, encoded, shape(), start
        )
    return fields


def _usage(infos: list[dict[str, Any]]) -> dict[str, Any]:
    prompt = infos[0].get("prompt_tokens", 0)
    completion = sum(info.get("completion_tokens", 0) for info in infos)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": infos[0].get("cached_tokens", 0)},
    }


def _prompt(
    manager: TokenizerManager, job: Job, item: dict[str, Any]
) -> dict[str, Any]:
    """Return the prompt as prefilled and the places of images, if requested."""
    token_ids = places = None
    if job.wants_prompt and job.n_images:
        token_ids = item.get("prompt_token_ids") or []
        places = content_parts.placeholders(manager, token_ids, job.n_images)
    elif job.wants_prompt:
        # --allow-auto-truncate truncates it.
        token_ids = job.token_ids[: item["meta_info"].get("prompt_tokens")]
    return {"prompt_token_ids": token_ids or None, "mm_placeholders": places}


def prompt_logprobs(count: int, meta_info: dict[str, Any]) -> list[Any]:
    """Return the logprobs of the prompt's tokens, of which the first has none.

    Raises:
        ValueError: the engine gave fewer logprobs than tokens.
    """
    rows = meta_info.get("input_token_logprobs") or []
    if len(rows) != meta_info["prompt_tokens"]:
        raise ValueError(
            f"The engine gave {len(rows)} logprobs for a prompt of "
            f"{meta_info['prompt_tokens']} tokens."
        )
    tops = meta_info.get("input_top_logprobs") or [None] * len(rows)
    return [
        None if row[0] is None else _by_id(row, (top or [])[:count])
        for row, top in zip(rows, tops, strict=True)
    ]


def _by_id(row: Any, top: list[Any]) -> dict[str, dict[str, Any]]:
    """Return a prompt token's logprob and those of the likeliest tokens, by ID.

    Clients sort by rank. A token that is not among the likeliest comes after them.
    """
    ranks = {token_id: rank for rank, (_, token_id, *_) in enumerate(top, 1)}
    last = len(top) + 1 if top else None
    return {
        str(token_id): {
            "logprob": max(_LOWEST, value),
            "rank": ranks.get(token_id, last),
            "decoded_token": None,
        }
        for value, token_id, *_ in (row, *top)
    }


def entries(rows: list[Any], tops: list[Any] | None, count: int) -> list[Any]:
    """Return the logprobs of tokens, in both of vLLM's dialects.

    Args:
        rows: `(logprob, token ID, text)` of each token.
        tops: rows of the likeliest tokens, for each token.
        count: number of alternatives to return, the token itself included.
    """
    found = []
    for (value, own_id, *_), top in zip(rows, tops or [()] * len(rows), strict=True):
        own = _entry(value, own_id)
        others = []
        for rank, (other_value, token_id, *_) in enumerate(top, 1):
            if token_id == own_id:
                own["rank"] = rank
            elif rank <= count:
                others.append(_entry(other_value, token_id) | {"rank": rank})
        found.append({**own, "top_logprobs": [own, *others[: max(count, 1) - 1]]})
    return found


def _entry(value: float, token_id: int) -> dict[str, Any]:
    # Older clients read `token`, newer ones `token_id`.
    logprob = max(_LOWEST, value)
    return {"token": f"token_id:{token_id}", "token_id": token_id, "logprob": logprob}


@wrapping
async def tokenized(
    handle: Any,
    self: OpenAIServingTokenize,
    adapted_request: TokenizeRequest,
    request: TokenizeRequest,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Decorate the handler of /tokenize: add each token as text, if requested."""
    more = request.model_extra or {}
    is_continued = request_fields.read(request, "continue_final_message")
    if more.get("add_generation_prompt") is False and not is_continued:
        return self.create_error_response(
            "add_generation_prompt: false is not supported by this SGLang. It "
            "needs SGLang 0.5.23 or later."
        )
    response = await handle(self, adapted_request, request, *args, **kwargs)
    if request.return_token_strs and hasattr(response, "tokens"):
        to_tokens = self.tokenizer_manager.tokenizer.convert_ids_to_tokens
        tokens = response.tokens
        is_batch = tokens and isinstance(tokens[0], list)
        response.token_strs = (
            [*map(to_tokens, tokens)] if is_batch else to_tokens(tokens)
        )
    return response


@wrapping
async def detokenized(handle: Any, *args: Any, **kwargs: Any) -> Any:
    """Decorate the handler of /detokenize: add the text under vLLM's name."""
    response = await handle(*args, **kwargs)
    if hasattr(response, "text"):
        response.prompt = response.text
    return response


class _Choices:
    """The parts of each choice that a stream has sent."""

    def __init__(self, manager: TokenizerManager, job: Job) -> None:
        self._manager = manager
        self._job = job
        mode = "text" if job.wants_text else "tokens"
        self._opening = {"request_id": job.request_id, "output_mode": mode}
        self._ids_are_new = bool(attrgetter(release.STREAM_OUTPUT)(manager))
        self._text_is_new = self._ids_are_new and release.TEXT_IS_NEW
        self._lists = [*job.sampling.masks.values()]
        if job.sampling.logprobs is not None:
            self._lists += logprobs.KEYS
        self._choices: dict[int, Choice] = {}
        self._n_characters: dict[int, int] = {}

    def chunk(self, item: dict[str, Any]) -> bytes:
        """Write the event for an output of the engine.

        Raises:
            ValueError: the engine rejected the request, or gave too few logprobs.
        """
        job, meta_info = self._job, item["meta_info"]
        reason = meta_info["finish_reason"]
        if reason and reason["type"] == "abort" and reason.get("status_code"):
            raise BadRequest(None, reason["message"], int(reason["status_code"]))
        index = item.get("index", 0)
        is_first = not self._choices
        choice = self._choices.get(index)
        if choice is None:
            choice = Choice(index, self._ids_are_new, self._lists)
            self._choices[index] = choice
        choice.push(item)
        if job.wants_text and not self._text_is_new:
            n_characters = self._n_characters.get(index, 0)
            self._n_characters[index] = len(item["text"])
            item = {**item, "text": item["text"][n_characters:]}
        fields = {"index": index, **_piece(job, item, *choice.take())}
        if reason:
            fields |= _end(self._manager, job, meta_info)
        data: dict[str, Any] = {**self._opening, "choices": [fields]}
        if is_first:
            if job.wants_prompt:
                data |= _prompt(self._manager, job, item)
            if (count := job.sampling.prompt_logprobs) is not None:
                data["prompt_logprobs"] = prompt_logprobs(count, meta_info)
        if job.usage == "each":
            data["usage"] = self._usage()
        return _event(data)

    def end(self) -> bytes:
        """Write the events after the last chunk."""
        usage = b""
        if self._job.usage:
            usage = _event({**self._opening, "choices": [], "usage": self._usage()})
        return usage + b"data: [DONE]\n\n"

    def _usage(self) -> dict[str, Any]:
        return _usage([one.meta_info for _, one in sorted(self._choices.items())])


def _event(data: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(data) + b"\n\n"


async def answer_stream(
    manager: TokenizerManager,
    job: Job,
    request: Request,
    running: dict[str, Job],
) -> Any:
    """Generate, and answer with a stream of server-sent events."""
    from fastapi.responses import StreamingResponse

    outputs = manager.generate_request(job.obj, request)
    choices = _Choices(manager, job)
    is_over = False
    running[job.request_id] = job

    async def events() -> AsyncGenerator[bytes, None]:
        nonlocal is_over
        try:
            yield first
            async for item in outputs:
                yield choices.chunk(item)
            is_over = True
            yield choices.end()
        except ValueError as error:
            if not isinstance(error, BadRequest):
                error = streams.stream_error(error)
            yield _event(error_content(error)) + b"data: [DONE]\n\n"

    async def end() -> None:
        """Abort the request unless it is over."""
        running.pop(job.request_id, None)
        if not is_over:
            for rid in [*aborts.find_samples(manager, job)]:
                manager.abort_request(rid)
            await outputs.aclose()

    class Stream(StreamingResponse):
        async def __call__(self, *args: Any) -> None:
            try:
                await super().__call__(*args)
            finally:
                # `events` may never start: the client may leave before the first one.
                await end()

    try:
        # The status is sent only once the engine has accepted the request.
        first = choices.chunk(await outputs.__anext__())
    except BaseException:
        await end()
        raise
    return Stream(events(), media_type="text/event-stream")
