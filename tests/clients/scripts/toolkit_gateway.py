"""Hold conversations through the gateway of agentcore-rl-toolkit, and print its turns."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any
from urllib.request import Request, urlopen

from agentcore_rl_toolkit.rollout_gateway import (
    HfTemplateRenderer,
    RolloutGateway,
    ThreadedGatewayServer,
)
from agentcore_rl_toolkit.rollout_gateway.sampling_backends.sglang_http import (
    SglangHttpBackend,
)
from agentcore_rl_toolkit.rollout_gateway.sampling_backends.vllm_http import (
    VllmHttpBackend,
)
from transformers import AutoTokenizer

BACKENDS = {"/generate": SglangHttpBackend, "/inference/v1/generate": VllmHttpBackend}
CALL = re.compile(r"<tool_call>\n(.*?)\n</tool_call>", re.DOTALL)


def _find_calls(
    text: str, tools: list[dict[str, Any]]
) -> tuple[str, list[dict[str, Any]], bool]:
    calls = [json.loads(call) for call in CALL.findall(text)]
    uses = [{"name": call["name"], "input": call["arguments"]} for call in calls]
    return CALL.sub("", text), uses, False


def _ask(url: str, session: str, body: dict[str, Any]) -> dict[str, Any]:
    """Send a request to the gateway; return the assistant's message."""
    headers = {"Authorization": f"Bearer {session}", "Content-Type": "application/json"}
    data = json.dumps(body).encode()
    with urlopen(Request(f"{url}/chat/completions", data, headers)) as answer:
        text = answer.read().decode()
    if not body["stream"]:
        whole: dict[str, Any] = json.loads(text)["choices"][0]["message"]
        return whole
    message: dict[str, Any] = {}
    for line in text.splitlines():
        if line.startswith("data: {"):
            message |= json.loads(line[len("data: ") :])["choices"][0]["delta"]
    return message


def _converse(task: dict[str, Any], path: str, streaming: bool) -> dict[str, Any]:
    turns: list[Any] = []
    tokenizer = AutoTokenizer.from_pretrained(task["tokenizer"])
    gateway = RolloutGateway(
        backend=BACKENDS[path](task["base_url"]),
        renderer=HfTemplateRenderer(tokenizer, tool_parser=_find_calls),
        history_mode="linear",
        debug_callback=lambda *parts: turns.append(parts[-1]),
    )
    server = ThreadedGatewayServer(gateway, host="127.0.0.1")
    server.start()
    gateway.create_session("s", sampling_defaults={"temperature": 0})
    body = {"stream": streaming, "max_tokens": 100, "tools": task["tools"]}
    messages: list[dict[str, Any]] = []
    for question in task["questions"]:
        messages.append({"role": "user", "content": question})
        said = _ask(server.base_url, "s", {**body, "messages": messages})
        messages.append(said)
        messages += [
            {"role": "tool", "tool_call_id": call["id"], "content": "20 C"}
            for call in said.get("tool_calls", ())
        ]
    records = asyncio.run(gateway.finish_session("s"))
    server.shutdown()
    return {
        "turns": [[t.prompt_ids, t.output_ids, t.output_log_probs] for t in turns],
        "records": [[r.token_ids, r.loss_mask, r.logprobs] for r in records],
        "calls": [len(said.get("tool_calls", ())) for said in messages],
    }


def read(task: dict[str, Any]) -> dict[str, Any]:
    return {
        f"{path}, {streaming}": _converse(task, path, streaming)
        for path in BACKENDS
        for streaming in (False, True)
    }
