"""Print the fields that `langchain-openai` keeps of chat completions."""

from __future__ import annotations

from typing import Any

from langchain_openai import ChatOpenAI


def _kept(message: Any) -> dict[str, Any]:
    kept = {**message.additional_kwargs, **message.response_metadata}
    logprobs = (kept.get("logprobs") or {}).get("content")
    return {
        "prompt": kept.get("prompt_token_ids"),
        "token_ids": kept.get("token_ids"),
        "logprobs": logprobs and [entry["logprob"] for entry in logprobs],
    }


def read(task: dict[str, Any]) -> dict[str, Any]:
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
    return {"invoke()": _kept(whole), "stream()": _kept(streamed)}
