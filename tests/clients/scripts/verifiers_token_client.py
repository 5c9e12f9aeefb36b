"""What the token client of verifiers 0.1 keeps of a first turn."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from openai import AsyncOpenAI
from verifiers.clients.openai_chat_completions_token_client import (
    OpenAIChatCompletionsTokenClient,
)
from verifiers.types import UserMessage


async def _first_turn(task: dict[str, Any]) -> dict[str, Any]:
    openai = AsyncOpenAI(base_url=f"{task['base_url']}/v1", api_key="none")
    client: Any = OpenAIChatCompletionsTokenClient(openai)
    response = await client.get_response(
        prompt=[
            UserMessage(content=message["content"]) for message in task["messages"]
        ],
        model="default",
        sampling_args={"temperature": 0, "max_tokens": 400},
        state={"trajectory": [], "model": "default"},
    )
    tokens = response.message.tokens
    return {
        "prompt": tokens and tokens.prompt_ids,
        "token_ids": tokens and tokens.completion_ids,
        "logprobs": tokens and tokens.completion_logprobs,
    }


def main() -> None:
    task = json.load(sys.stdin)
    read = asyncio.run(_first_turn(task))
    json.dump({"first turn": read}, sys.stdout)


if __name__ == "__main__":
    main()
