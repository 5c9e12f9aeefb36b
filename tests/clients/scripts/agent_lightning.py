"""Print the trace that Agent Lightning's proxy records of a chat completion."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

import httpx
from agentlightning import InMemoryLightningStore, LLMProxy, LlmProxyTraceToTriplet

# LiteLLM 1.108 requires an API key, and the health check of its proxy sends none.
os.environ["LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY"] = "true"


async def _record(task: dict[str, Any], streamed: bool) -> list[Any]:
    store = InMemoryLightningStore(thread_safe=True)
    rollout = await store.start_rollout(input=None)
    proxy = LLMProxy(
        store=store,
        launch_mode="thread",
        host="127.0.0.1",
        model_list=[
            {
                "model_name": "default",
                "litellm_params": {
                    "model": "hosted_vllm/default",
                    "api_base": f"{task['base_url']}/v1",
                    "api_key": "none",
                },
            }
        ],
        callbacks=["return_token_ids", "opentelemetry", "logprobs"],
    )
    await proxy.start()
    try:
        resource = proxy.as_resource(rollout.rollout_id, rollout.attempt.attempt_id)
        body = {
            "model": "default",
            "messages": task["messages"],
            "temperature": 0,
            "max_tokens": 400,
            "stream": streamed,
        }
        async with httpx.AsyncClient(timeout=120) as client:
            answer = await client.post(
                f"{resource.endpoint}/chat/completions", json=body
            )
            answer.raise_for_status()
        deadline = time.monotonic() + 60
        triplets: list[Any] = []
        while not triplets and time.monotonic() < deadline:
            await asyncio.sleep(0.5)
            spans = await store.query_spans(rollout.rollout_id)
            triplets = LlmProxyTraceToTriplet().adapt(spans)
    finally:
        await proxy.stop()
    [triplet] = triplets
    logprobs = triplet.response.get("logprobs")
    return [
        triplet.prompt["token_ids"],
        triplet.response["token_ids"],
        logprobs and [entry["logprob"] for entry in logprobs],
    ]


def read(task: dict[str, Any]) -> dict[str, Any]:
    how = "LLMProxy, LlmProxyTraceToTriplet"
    return {
        how: asyncio.run(_record(task, streamed=False)),
        f"{how}, streamed": asyncio.run(_record(task, streamed=True)),
    }
