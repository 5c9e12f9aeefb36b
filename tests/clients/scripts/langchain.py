"""What `langchain-openai` keeps of chat completions."""

from __future__ import annotations

import json
import sys
from typing import Any

from langchain_openai import ChatOpenAI


def _read(message: Any) -> dict[str, Any]:
    kept = {**message.additional_kwargs, **message.response_metadata}
    logprobs = (kept.get("logprobs") or {}).get("content")
    return {
        "prompt": kept.get("prompt_token_ids"),
        "token_ids": kept.get("token_ids"),
        "logprobs": logprobs and [entry["logprob"] for entry in logprobs],
    }


def main() -> None:
    task = json.load(sys.stdin)
    model: Any = ChatOpenAI(
        model="default",
        base_url=f"{task['base_url']}/v1",
        api_key="none",
        temperature=0,
        max_retries=0,
        logprobs=True,
        extra_body={"return_token_ids": True, "max_tokens": 400},
    )
    whole = model.invoke(task["messages"])
    streamed = None
    for chunk in model.stream(task["messages"]):
        streamed = chunk if streamed is None else streamed + chunk
    json.dump({"invoke()": _read(whole), "stream()": _read(streamed)}, sys.stdout)


if __name__ == "__main__":
    main()
