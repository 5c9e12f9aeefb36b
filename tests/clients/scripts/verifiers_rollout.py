"""A rollout of verifiers with a tool: its agent, harness, tool server and train client.

The tool server is a process of its own, which runs this file.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import verifiers.v1 as vf
from renderers import Qwen3RendererConfig
from verifiers.v1.harnesses.null import NullHarnessConfig


class Weather(vf.Toolset[vf.ToolsetConfig, vf.State]):  # type: ignore[misc]
    TOOL_PREFIX = None

    @vf.tool  # type: ignore[untyped-decorator]
    def get_weather(self, city: str) -> str:
        """The weather in a city right now."""
        return f"sunny in {city}, 20 C"


class Question(vf.Task[vf.TaskData, vf.State]):  # type: ignore[misc]
    @classmethod
    def toolsets(cls, config: Any) -> list[Any]:
        return [Weather(vf.ToolsetConfig())]


async def _rollout(task: dict[str, Any]) -> Any:
    client = vf.TrainClientConfig(
        base_url=f"{task['base_url']}/v1",
        api_key_var="AGENTCORE_NO_KEY",
        renderer=Qwen3RendererConfig(),
        renderer_model_name=task["tokenizer"],
    )
    config = vf.AgentConfig(
        harness=NullHarnessConfig(id="null"),
        runtime=vf.SubprocessConfig(),
        model=task["model"],
        client=client,
        sampling={
            "temperature": 0,
            "max_tokens": task["max_tokens"],
            "cache_salt": "7",
        },
        max_turns=5,
        network_notice=False,
    )
    first, *others = task["questions"]
    async with vf.make_agent(config) as agent:
        question = Question(vf.TaskData(prompt=first))
        async with agent.interaction(question) as chat:
            await chat.turn()
            for question in others:
                await chat.turn(question)
    return chat.trace


def read(task: dict[str, Any]) -> dict[str, Any]:
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)
    trace = asyncio.run(_rollout(task))
    found: dict[str, Any] = trace.model_dump(mode="json")
    found["branches"] = [
        {
            "token_ids": branch.token_ids,
            "mask": branch.sampled_mask,
            "logprobs": branch.logprobs,
        }
        for branch in trace.branches
    ]
    return found


if __name__ == "__main__":
    Weather.run()
