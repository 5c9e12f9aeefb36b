"""SGLang's own FastAPI application, called as an ASGI server calls it."""

from __future__ import annotations

import asyncio
import inspect
import json
import time
from collections.abc import AsyncIterator
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

MODEL_VOCABULARY = 32_000
PROMPT = 512
CHAT, COMPLETIONS, GENERATE = "/v1/chat/completions", "/v1/completions", "/generate"
VLLM_GENERATE = "/inference/v1/generate"


def result(n: int, **meta_info: Any) -> dict[str, Any]:
    """Build the tokenizer manager's result for a response of `n` tokens."""
    return {
        "text": "word " * n,
        "output_ids": [i % MODEL_VOCABULARY for i in range(n)],
        "prompt_token_ids": list(range(PROMPT)),
        "meta_info": {
            "id": "0" * 32,
            "finish_reason": {"type": "length", "length": n},
            "prompt_tokens": PROMPT,
            "weight_version": "default",
            "total_retractions": 0,
            "completion_tokens": n,
            "cached_tokens": 0,
            "e2e_latency": 12.5,
            **meta_info,
        },
    }


def server_args(**args: Any) -> Any:
    """Put the arguments of a server without a model where SGLang looks for them."""
    from sglang.srt.server_args import ServerArgs

    made = ServerArgs(model_path="dummy", **args)
    if hasattr(made, "resolve_once"):
        made.resolve_once()
    if find_spec("sglang.srt.runtime_context"):
        from sglang.srt.runtime_context import get_context

        # 0.5.14 moved them into a context.
        if hasattr(get_context(), "set_server_args"):
            get_context().set_server_args(made)
    return made


class Application:
    """SGLang's FastAPI application over a stand-in for the engine.

    Attributes:
        result: what the engine answers next, or the error that it raises.
        has_vllm: True if it has vLLM's endpoint, which vanilla SGLang lacks.
        arrived: the event loop's CPU time when the engine got the request, in seconds.
        delivered: the same when it gave its result.
        written: the same when the last bytes of the answer were sent.
    """

    def __init__(self, **args: Any) -> None:
        from sglang.srt.entrypoints import http_server
        from sglang.srt.entrypoints.openai.serving_chat import OpenAIServingChat
        from sglang.srt.entrypoints.openai.serving_completions import (
            OpenAIServingCompletion,
        )
        from sglang.srt.managers.tokenizer_manager import TokenizerManager
        from sglang.srt.sampling.sampling_params import SamplingParams

        self.result: Any = None
        self.arrived = 0.0
        self.delivered = 0.0
        self.written = 0.0
        # Patches call these methods, so they are the real ones.
        manager = object.__new__(TokenizerManager)
        vars(manager).update(
            generate_request=self._generate,
            create_abort_task=lambda _: None,
            server_args=server_args(context_length=131_072, **args),
            model_config=SimpleNamespace(
                get_default_sampling_params=dict,
                is_multimodal=False,
                vocab_size=MODEL_VOCABULARY,
                image_token_id=None,
                hf_config=SimpleNamespace(model_type="x", architectures=["X"]),
                hf_text_config=SimpleNamespace(
                    num_hidden_layers=64, num_experts_per_tok=8, num_experts=128
                ),
            ),
            request_logger=SimpleNamespace(log_requests=False),
            is_generation=True,
            mm_processor=None,
            context_len=131_072,
            served_model_name="m",
            model_path="m",
            rid_to_state={},
            sampling_params_class=SamplingParams,
            num_reserved_tokens=0,
            max_req_input_len=131_000,
            tokenizer=SimpleNamespace(
                eos_token_id=None,
                apply_chat_template=lambda *_, **__: list(range(PROMPT)),
                encode=lambda *_, **__: list(range(PROMPT)),
                chat_template="x",
                bos_token_id=None,
            ),
        )
        templates = http_server.TemplateManager()
        http_server.set_global_state(
            http_server._GlobalState(manager, templates, scheduler_info={})
        )
        self.app = http_server.app
        self.app.state.openai_serving_chat = OpenAIServingChat(manager, templates)
        self.app.state.openai_serving_completion = OpenAIServingCompletion(
            manager, templates
        )
        self.has_vllm = find_spec("sglang.srt.agentcore") is not None
        if self.has_vllm:
            from sglang.srt.agentcore.vllm_api import generate

            # As the application does when the server starts.
            endpoints = filter(inspect.isfunction, vars(http_server).values())
            generate.add_routes(self.app, manager, {}, endpoints)

    async def _generate(self, *_: Any) -> AsyncIterator[Any]:
        self.arrived = time.thread_time()
        answer, self.result = self.result, None
        if isinstance(answer, Exception):
            raise answer
        self.delivered = time.thread_time()
        yield answer

    @staticmethod
    def smallest(path: str) -> dict[str, Any]:
        """The smallest request that an endpoint accepts."""
        if path == VLLM_GENERATE:
            return {"token_ids": [1], "sampling_params": {"max_tokens": 1}}
        if path == CHAT:
            return {"model": "m", "messages": [{"role": "user", "content": "-"}]}
        return {"model": "m", "prompt": "-"} if path == COMPLETIONS else {"text": "-"}

    async def post(
        self, path: str, body: dict[str, Any]
    ) -> tuple[int, dict[str, str], bytes]:
        sent = [{"type": "http.request", "body": json.dumps(body).encode()}]
        got: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            if sent:
                return sent.pop()
            await asyncio.sleep(3600)
            raise AssertionError

        async def send(message: dict[str, Any]) -> None:
            self.written = time.thread_time()
            got.append(message)

        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [(b"content-type", b"application/json")],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 2),
        }
        try:
            await self.app(scope, receive, send)
        except Exception:
            # Starlette answers 500, then raises the error for uvicorn to log.
            if not got or got[0]["status"] != 500:
                raise
        start, *parts = got
        headers = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in start["headers"]
        }
        body_parts = [part.get("body", b"") for part in parts]
        return start["status"], headers, b"".join(body_parts)
