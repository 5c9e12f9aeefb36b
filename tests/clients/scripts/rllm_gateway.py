"""Print the traces that rLLM's model gateway records of requests."""

from __future__ import annotations

import threading
import time
from typing import Any

import httpx
import uvicorn
from rllm_model_gateway import GatewayClient, GatewayConfig, create_app
from rllm_model_gateway.models import WorkerConfig


def _serve(worker: str) -> tuple[Any, str]:
    """Run the gateway in a thread; yield its URL."""
    app = create_app(
        GatewayConfig(
            store_worker="memory",
            workers=[WorkerConfig(url=f"{worker}/v1")],
            sync_traces=True,
        )
    )
    server = uvicorn.Server(
        uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error")
    )
    threading.Thread(target=server.run, daemon=True).start()
    while not server.started:
        time.sleep(0.05)
    port = server.servers[0].sockets[0].getsockname()[1]
    return server, f"http://127.0.0.1:{port}"


def _trace(gateway: GatewayClient, path: str, body: dict[str, Any]) -> list[Any]:
    """Return the trace of one request in a session of its own."""
    session = gateway.create_session()
    url = f"{gateway.get_session_url(session)}{path}"
    httpx.post(url, json={"model": "default", **body}, timeout=120).raise_for_status()
    deadline = time.monotonic() + 10
    while not (traces := gateway.get_session_traces(session)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    [trace] = traces
    return [trace.prompt_token_ids, trace.completion_token_ids, trace.logprobs]


def read(task: dict[str, Any]) -> dict[str, Any]:
    server, url = _serve(task["base_url"])
    options = {"temperature": 0, "max_tokens": 400}
    chat = {"messages": task["messages"], **options}
    completion = {"prompt": task["prompt"], **options}
    with GatewayClient(url) as gateway:
        found = {
            "chat": _trace(gateway, "/chat/completions", chat),
            "chat, streamed": _trace(
                gateway, "/chat/completions", {**chat, "stream": True}
            ),
            "completions with a prompt of IDs": _trace(
                gateway, "/completions", completion
            ),
        }
    server.should_exit = True
    return found
