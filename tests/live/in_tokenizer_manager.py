"""Tests of the patched tokenizer manager and chat endpoint, with a stand-in engine.

Run like `in_sglang`. A script delivers the engine's results step by step, so that it
can do things that no engine on a CPU does: several tokens in a step, or no logprobs.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
from collections.abc import Callable
from functools import partial
from itertools import product
from types import SimpleNamespace
from typing import Any
from unittest import mock

from tests.live.in_sglang import (
    chat,
    run_tests,
    serving,
    template_manager,
    tokenizer_manager,
)

PROMPT = [5, 6, 7]


class Engine:
    """A real tokenizer manager with a scripted scheduler."""

    def __init__(self, script: Callable[[Engine, Any], None], **args: Any) -> None:
        from sglang.srt.managers import tokenizer_manager as module
        from sglang.srt.managers.io_struct import AbortReq

        module.wrap_shm_features = lambda obj: obj  # The real method asks a server.
        self.script = script
        self.sent: list[Any] = []
        self.delivering: asyncio.Future[None] | None = None
        self.release = mock.AsyncMock()
        self.abort = AbortReq
        self.manager = manager = tokenizer_manager(**args)
        manager.send_to_scheduler = SimpleNamespace(send_pyobj=self._send)
        manager._dispatch_to_scheduler = self._send  # From 0.5.15 on.
        manager.lora_registry = SimpleNamespace(release=self.release)
        manager._validate_and_resolve_lora = mock.AsyncMock(return_value=None)

    def _send(self, tokenized: Any) -> None:
        # The engine may know a request by the ID with a suffix; results under the
        # bare ID belong to the request, too.
        if hasattr(tokenized, "rid"):
            tokenized.rid = tokenized.rid.partition("\x1f")[0]
        self.sent.append(tokenized)
        asyncio.get_running_loop().call_soon(self.script, self, tokenized)

    def deliver(
        self, rid: str, ids: list[int], logprobs: int | None = None, **more: Any
    ) -> None:
        """Deliver new tokens to one request, with as many logprobs or fewer."""
        state = self.manager.rid_to_state.get(rid)
        so_far = len(state.output_ids) if state is not None else 0
        n_logprobs = len(ids) if logprobs is None else logprobs
        values = [-0.01 * (so_far + i) for i in range(n_logprobs)]
        named = (ids + [99] * n_logprobs)[:n_logprobs]
        finish = more.pop("finish", None)
        self.hand_on(
            output(
                rids=[rid],
                output_ids=[ids],
                output_strs=["".join(f"<{i}>" for i in ids)],
                finished_reasons=[finish],
                prompt_tokens=[more.pop("prompt_tokens", len(PROMPT))],
                completion_tokens=[so_far + len(ids)],
                output_token_logprobs_val=[values],
                output_token_logprobs_idx=[named],
                **more,
            )
        )

    def hand_on(self, batch: Any) -> None:
        """Hand a batch of outputs to the manager without waiting."""
        handling = self.manager._handle_batch_output(batch)
        if inspect.iscoroutine(handling):  # From 0.5.11 on.
            with contextlib.suppress(StopIteration):
                handling.send(None)

    def ask(self, **body: Any) -> list[dict[str, Any]]:
        """Return a stream's events, or a list with the one non-streaming response."""
        request = chat(input_ids=PROMPT, **{"model": "m", **body})
        return self._answer(serving(self.manager), request)

    def complete(self, **body: Any) -> list[dict[str, Any]]:
        from sglang.srt.entrypoints.openai.protocol import CompletionRequest
        from sglang.srt.entrypoints.openai.serving_completions import (
            OpenAIServingCompletion,
        )

        endpoint = OpenAIServingCompletion(self.manager, template_manager())
        request = CompletionRequest(prompt=PROMPT, model="m", logprobs=0, **body)
        return self._answer(endpoint, request)

    def generate(self, **body: Any) -> Any:
        from sglang.srt.entrypoints import http_server
        from sglang.srt.managers.io_struct import GenerateReqInput

        http_server._global_state = SimpleNamespace(tokenizer_manager=self.manager)
        asked = http_server.generate_request(
            GenerateReqInput(**body), self._raw(**body)
        )
        return asyncio.run(asyncio.wait_for(asked, timeout=10))

    def _raw(self, **body: Any) -> Any:
        return SimpleNamespace(
            headers={},
            json=mock.AsyncMock(return_value=body),
            is_disconnected=mock.AsyncMock(return_value=False),
            state=SimpleNamespace(),
            scope={},
        )

    def _answer(self, endpoint: Any, request: Any) -> list[dict[str, Any]]:
        async def answered() -> list[dict[str, Any]]:
            raw = self._raw()
            response = await endpoint.handle_request(request, raw)
            if hasattr(response, "body_iterator"):
                lines = [line async for line in response.body_iterator]
                return [
                    json.loads(line[len("data: ") :])
                    for line in lines
                    if line.startswith("data: {")
                ]
            if not hasattr(response, "body"):  # FastAPI writes this JSON.
                return [json.loads(response.model_dump_json())]
            return [json.loads(response.body)]

        return asyncio.run(asyncio.wait_for(answered(), timeout=10))


def output(**values: Any) -> Any:
    """Build the detokenizer's output for a batch of requests."""
    from sglang.srt.managers.io_struct import BatchStrOutput

    names = inspect.signature(BatchStrOutput).parameters
    n = len(values["rids"])
    zeros = "cached_tokens", "reasoning_tokens", "retraction_counts"
    lists: dict[str, Any] = {
        name: [[]] * n for name in names if "input_" in name and "logprobs" in name
    }
    rest = {name: [0] * n for name in zeros if name in names}
    return BatchStrOutput(**dict.fromkeys(names) | lists | rest | values)


STOP = {"type": "stop", "matched": 2}
WAYS = [*product((False, True), repeat=2)]
"""A request's `stream`, and a server's `stream_output`."""
STEPS = [[11], [12, 13, 14], [], [15, 16], [17]]
IDS = [i for step in STEPS for i in step]


def in_steps(engine: Engine, tokenized: Any, pause: float = 0) -> None:
    """Deliver `STEPS`; the reader wakes in between only if there is a pause."""

    async def deliver() -> None:
        for n, step in enumerate(STEPS, start=1):
            finish = STOP if n == len(STEPS) else None
            engine.deliver(tokenized.rid, step, finish=finish)
            if pause:
                await asyncio.sleep(pause)

    engine.delivering = asyncio.ensure_future(deliver())


def contents(events: list[dict[str, Any]]) -> tuple[list[int], list[float], list[str]]:
    """Return IDs, logprobs and errors of a response; check their counts per chunk."""
    ids: list[int] = []
    logprobs: list[float] = []
    errors = []
    for event in events:
        if "error" in event or event.get("object") == "error":
            errors.append(event.get("error", event)["message"])
            continue
        for choice in event["choices"]:
            new = choice.get("token_ids") or []
            ids += new
            if choice["logprobs"] is not None:
                content = choice["logprobs"]["content"]
                assert len(content) == len(new)
                logprobs += [entry["logprob"] for entry in content]
    return ids, logprobs, errors


def test_several_tokens_in_a_step_keep_their_logprobs() -> None:
    wanted: Any = IDS, [-0.01 * i for i in range(len(IDS))], []
    for script in (in_steps, partial(in_steps, pause=0.01)):
        for stream, stream_output in WAYS:
            engine = Engine(script, stream_output=stream_output)
            events = engine.ask(stream=stream, logprobs=True)
            assert contents(events) == wanted, (script, stream_output, stream)
            assert engine.manager.rid_to_state == {}


def no_logprobs(engine: Engine, tokenized: Any) -> None:
    engine.deliver(tokenized.rid, [11], logprobs=1)
    engine.deliver(tokenized.rid, [12, 13], logprobs=0, finish=STOP)


def test_missing_logprobs_are_an_error() -> None:
    for stream in (False, True):
        engine = Engine(no_logprobs)
        ids, _, [error] = contents(engine.ask(stream=stream, logprobs=True))
        assert "The engine gave 1 logprobs for" in error
        assert ids == []
        assert contents(Engine(no_logprobs).ask(stream=stream))[0] == [11, 12, 13]
        asked = {"stream": stream, "return_token_ids": True}
        *_, last = Engine(no_logprobs).complete(**asked)
        assert "The engine gave 1 logprobs for" in str(last), stream
        assert "error" not in str(Engine(no_logprobs).complete(stream=stream))


def test_a_server_without_logprobs_rejects_them_before_generating() -> None:
    from sglang.srt.agentcore import release

    servers = [{"dllm_algorithm": "LowConfidence"}]
    if release.SPECULATION_LOSES_LOGPROBS:
        servers.append({"speculative_algorithm": "EAGLE"})
    for args in servers:
        engine = Engine(in_steps, **args)
        for [refused] in (
            engine.ask(logprobs=True),
            engine.complete(return_token_ids=True, stream=True),
        ):
            assert refused["code"] == 400
            assert "logprobs are not supported" in refused["message"]
        wanted = {"input_ids": [PROMPT] * 2, "return_logprob": [False, True]}
        answer = engine.generate(**wanted)
        assert answer.status_code == 400
        assert b"logprobs are not supported" in answer.body
        assert engine.sent == []
        assert getattr(engine.generate(input_ids=PROMPT), "status_code", 200) == 200


def test_later_tokens_do_not_change_the_first_output_of_a_started_stream() -> None:
    from sglang.srt.agentcore.http import images
    from sglang.srt.managers.io_struct import GenerateReqInput

    def one(engine: Engine, tokenized: Any) -> None:
        engine.deliver(tokenized.rid, [11])

    async def read(is_read: bool) -> list[Any]:
        engine = Engine(one)
        obj = GenerateReqInput(
            input_ids=PROMPT, image_data="-", stream=True, return_logprob=True
        )
        assert await images.start_stream(engine.manager, obj, engine._raw()) is None
        if not is_read:
            # It does not block a weight update.
            await engine.manager.create_abort_task(obj)()
            async with engine.manager.model_update_lock.writer_lock:
                return []
        engine.deliver(obj.rid, [12], finish=STOP)
        found = [
            (output["output_ids"], len(output["meta_info"]["output_token_logprobs"]))
            async for output in engine.manager.generate_request(obj, engine._raw())
        ]
        assert images.take_started(obj) is None
        return found

    for is_read, outputs in ((True, [([11], 1), ([11, 12], 2)]), (False, [])):
        assert asyncio.run(asyncio.wait_for(read(is_read), 10)) == outputs


def test_an_abort_that_overtakes_an_output_ends_the_answer() -> None:
    def overtaken(engine: Engine, tokenized: Any) -> None:
        values = {"key": [["x", "y"]]}
        engine.deliver(tokenized.rid, [11, 12], customized_info=values)
        engine.manager._handle_abort_req(engine.abort(rid=tokenized.rid))
        engine.deliver(tokenized.rid, [13])  # The output was still in the detokenizer.
        engine.manager._handle_abort_req(engine.abort(rid=tokenized.rid))

    for stream, stream_output in WAYS:
        engine = Engine(overtaken, stream_output=stream_output)
        more = {} if stream else {"return_meta_info": True}
        events = engine.ask(stream=stream, logprobs=True, **more)
        assert contents(events) == ([11, 12], [-0.0, -0.01], [])
        if not stream:
            assert events[0]["choices"][0]["meta_info"]["key"] == ["x", "y"]
        assert events[-1]["choices"][0]["finish_reason"] == "abort"
        assert engine.manager.rid_to_state == {}


def test_a_vllm_stream_whose_client_left_before_it_began_is_aborted() -> None:
    from sglang.srt.agentcore.vllm_api import generate

    def first(engine: Engine, tokenized: Any) -> None:
        if not isinstance(tokenized, engine.abort):
            engine.deliver(tokenized.rid, [11])

    async def receive() -> Any:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        await asyncio.sleep(60)  # Starlette gives up here: the stream has not begun.

    engine = Engine(first)
    body = {"token_ids": PROMPT, "sampling_params": {}, "stream": True}
    asked = generate.read(engine.manager, engine._raw(), body)

    async def leave() -> None:
        response = await generate.answer_stream(engine.manager, asked, None, {})
        scope = {"type": "http", "asgi": {"spec_version": "2.3"}}
        await response(scope, receive, send)
        assert isinstance(engine.sent[-1], engine.abort)

    asyncio.run(asyncio.wait_for(leave(), timeout=30))


def test_a_prompt_that_the_scheduler_extended_is_not_returned() -> None:
    def longer(engine: Engine, tokenized: Any) -> None:
        engine.deliver(tokenized.rid, [11], prompt_tokens=900, finish=STOP)

    for stream in (False, True):
        events = Engine(longer).ask(stream=stream)
        assert contents(events)[0] == [11]
        assert not any("prompt_token_ids" in event for event in events)


if __name__ == "__main__":
    run_tests(globals())
