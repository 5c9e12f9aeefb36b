"""Event-loop CPU of a non-streaming response, from the engine's result to its bytes.

    python benchmarks/answers.py [--quick] [--json FILE]

SGLang's own FastAPI application is called like from an ASGI server, with a stand-in
engine. Patched and unpatched processes alternate. Ratios compare the medians over the
rounds. Unpatched SGLang lacks vLLM's endpoint: its /generate is measured instead.
Requests with 32,000 token IDs are timed from the call until the engine gets them. Of
chat's answers, the size in MB is measured, too, and the time that a client's
`json.loads` takes. Unpatched SGLang has no `token_logprobs`: its answer has none.
Needs SGLang in this interpreter; its install is copied, never changed.
"""

from __future__ import annotations

import asyncio
import gc
import json
import time
from dataclasses import dataclass, replace
from typing import Any

import application
from application import (
    CHAT,
    COMPLETIONS,
    GENERATE,
    MODEL_VOCABULARY,
    VLLM_GENERATE,
    Application,
)
from trees import compare


@dataclass(frozen=True)
class Workload:
    """One kind of response.

    Attributes:
        tokens: length of the answer.
        logprobs: True if it has logprobs.
        flat: True if it has one number for each token instead.
        top: how many `top_logprobs` for each token.
    """

    path: str
    tokens: int
    logprobs: bool = False
    top: int = 0
    flat: bool = False

    @property
    def name(self) -> str:
        extra = f", top_logprobs {self.top}" if self.top else ""
        if self.flat:
            return f"{self.path}, {self.tokens:,} tokens, token_logprobs"
        return f"{self.path}, {self.tokens:,} tokens" + (
            f", logprobs{extra}" if self.logprobs else ""
        )

    def body(self) -> dict[str, Any]:
        body = Application.smallest(self.path)
        if self.flat:
            return {**body, "return_token_logprobs": True}
        if not self.logprobs:
            return body
        if self.path == CHAT:
            return {**body, "logprobs": True, "top_logprobs": self.top}
        if self.path == COMPLETIONS:
            return {**body, "logprobs": self.top}
        if self.path == VLLM_GENERATE:
            return {**body, "sampling_params": {"max_tokens": 1, "logprobs": self.top}}
        return {**body, "return_logprob": True, "top_logprobs_num": self.top}


WORKLOADS = (
    Workload(CHAT, 16_000),
    Workload(CHAT, 16_000, logprobs=True),
    Workload(CHAT, 16_000, flat=True),
    Workload(CHAT, 64_000, logprobs=True),
    Workload(CHAT, 4_000, logprobs=True, top=5),
    Workload(COMPLETIONS, 16_000, logprobs=True),
    Workload(GENERATE, 16_000),
    Workload(GENERATE, 16_000, logprobs=True),
    Workload(VLLM_GENERATE, 16_000, logprobs=True),
)
PROMPT_IDS = 32_000
VOCABULARY = [
    f"{word}{i}" for i in range(300) for word in (" w", "é", "\n", '"', "見 ")
]


def logprob(i: int) -> tuple[float, int, str]:
    """Return a token's logprob row; every other token is nearly certain."""
    value = -(((i * 7919) % 10_007 / 10_007) ** 10) * 10 - 1e-9
    return value, i % MODEL_VOCABULARY, VOCABULARY[i % len(VOCABULARY)]


def result_of(workload: Workload) -> dict[str, Any]:
    """Build the tokenizer manager's result for a response."""
    n = workload.tokens
    meta_info: dict[str, Any] = {}
    if workload.logprobs or workload.flat:
        openai = workload.path in (CHAT, COMPLETIONS)
        entries = [logprob(i) for i in range(n)]
        meta_info["output_token_logprobs"] = (
            entries
            if openai and not workload.flat
            else [(value, i, None) for value, i, _ in entries]
        )
        meta_info["input_token_logprobs"] = []
        if workload.top:
            meta_info["output_top_logprobs"] = [
                [
                    (value, token_id, text if openai else None)
                    for value, token_id, text in map(
                        logprob, range(i, i + workload.top)
                    )
                ]
                for i in range(n)
            ]
    return application.result(n, **meta_info)


def answer(app: Application, workload: Workload) -> tuple[float, bytes]:
    """Measure seconds of CPU from the engine's result to the bytes of one response."""
    if workload.path == VLLM_GENERATE and not app.has_vllm:
        workload = replace(workload, path=GENERATE)
    app.result = result_of(workload)
    gc.collect()
    status, _, body = asyncio.run(app.post(workload.path, workload.body()))
    seconds = app.written - app.delivered
    if status != 200 or len(body) < workload.tokens:
        raise SystemExit(f"{workload.name}: {status}, {body[:300]!r}")
    return seconds, body


def reading(body: bytes) -> float:
    """Measure seconds of CPU until a client has parsed a response."""
    began = time.thread_time()
    json.loads(body)
    return time.thread_time() - began


def request(app: Application, path: str) -> float:
    """Measure seconds of CPU from a prompt of 32,000 IDs until the engine gets it."""
    ids = [i % MODEL_VOCABULARY for i in range(PROMPT_IDS)]
    body = {**app.smallest(path), "input_ids": ids}
    body.pop("text", None)
    app.result = application.result(1)
    gc.collect()
    began = time.thread_time()
    status, _, text = asyncio.run(app.post(path, body))
    if status != 200:
        raise SystemExit(f"{path}: {status}, {text[:300]!r}")
    # Writing the request is the client's cost.
    writing = time.thread_time()
    json.dumps(body).encode()
    return app.arrived - began - (time.thread_time() - writing)


def measure() -> dict[str, float]:
    """Measure all workloads in this process: milliseconds, the best of a few runs."""
    app = Application()
    gc.freeze()  # Both versions have imported the same modules.
    times, sizes = {}, {}
    for workload in WORKLOADS:
        answers = [answer(app, workload) for _ in range(3)]
        times[workload.name], body = min(answers)
        if (workload.path, workload.tokens) == (CHAT, 16_000):
            times[f"{workload.name}, parsed"] = min(reading(body) for _ in range(3))
            sizes[f"{workload.name}, MB"] = len(body) / 1e6
    for path in (CHAT, GENERATE):
        name = f"{path}, a prompt of {PROMPT_IDS:,} IDs"
        times[name] = min(request(app, path) for _ in range(8))
    return {**{f"{name}, ms": 1e3 * of for name, of in times.items()}, **sizes}


if __name__ == "__main__":
    title = "CPU time of a whole answer"
    compare(__file__, __doc__, title, measure, quick=1, full=5)
