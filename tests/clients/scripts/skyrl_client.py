"""Calls of SkyRL's `RemoteInferenceClient`, and what each returns."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import ClientResponseError
from skyrl.backends.skyrl_train.inference_servers.remote_inference_client import (
    RemoteInferenceClient,
)


async def _refusal(call: Any) -> dict[str, Any]:
    """Return the error that a call raises."""
    try:
        await call
    except ClientResponseError as error:
        return {"status": error.status, "message": error.message}
    raise AssertionError("the call did not fail")


async def _frozen_and_resumed(
    client: RemoteInferenceClient, batch: dict[str, Any]
) -> dict[str, Any]:
    """Pause in mode keep while a batch runs, and resume."""
    running = asyncio.create_task(client.generate(batch))
    await asyncio.sleep(0.3)
    paused = await client.pause_generation()
    await asyncio.sleep(0.5)
    was_done = running.done()
    await client.resume_generation()
    return {"paused": paused, "was_done": was_done, "batch": await running}


async def _calls(task: dict[str, Any]) -> dict[str, Any]:
    url, prompts = task["base_url"], task["prompts"]
    client = RemoteInferenceClient(
        proxy_url=url, server_urls=[url], data_parallel_size=1, model_name=task["model"]
    )
    sampling = {"temperature": 0, "max_tokens": 400, "logprobs": 0}
    batch: dict[str, Any] = {
        "prompt_token_ids": prompts,
        "sampling_params": sampling,
        "session_ids": [f"session-{index}" for index in range(len(prompts))],
        "cache_salt": "0",
    }
    sampled = {
        "prompt": {"chunks": [{"type": "encoded_text", "tokens": prompts[0]}]},
        "num_samples": 2,
        "sampling_params": {"temperature": 0, "max_tokens": 400, "top_k": -1},
        "include_prompt_logprobs": True,
        "topk_prompt_logprobs": 2,
    }
    async with client:
        found = {
            "world": await client.get_world_size(),
            "generate": await client.generate(batch),
            "sample": await client.sample({"json": sampled}),
            "tokenize": await client.tokenize([task["text"]], add_special_tokens=False),
            "pauses": await _frozen_and_resumed(client, batch),
        }
        found["detokenize"] = await client.detokenize(found["tokenize"])
        await client.reset_prefix_cache()
        for level, tags in ((2, ["kv_cache"]), (2, ["weights"]), (1, None)):
            await client.sleep(level, tags)
            await client.wake_up(tags)
        # The order of a training step: weights first, then the cache.
        await client.sleep(2)
        await client.wake_up(["weights"])
        await client.wake_up(["kv_cache"])
        found["after"] = await client.generate(batch)
        found["refused"] = [
            await _refusal(client.start_weight_update()),
            await _refusal(client.update_named_weights({"names": ["a"]})),
        ]
    return found


def read(task: dict[str, Any]) -> dict[str, Any]:
    return asyncio.run(_calls(task))
