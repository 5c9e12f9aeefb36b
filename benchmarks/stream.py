"""CPU time per chunk of the streaming chat generator, patched against unpatched.

    python benchmarks/stream.py [--quick] [--json FILE]

Both run SGLang's own `OpenAIServingChat` with a stand-in engine that delivers one token
at a time, in alternating processes. The stand-in costs both alike, and more with each
chunk, since an answer's text is cumulative. Ratios compare the medians over the rounds.
Needs SGLang in this interpreter; its install is copied, never changed.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from application import MODEL_VOCABULARY, Application
from trees import compare


@dataclass(frozen=True)
class Workload:
    name: str
    chunks: int
    logprobs: bool = False
    flat: bool = False
    tools: bool = False
    prompt: int = 32
    stream_output: bool = False


WORKLOADS = (
    *(Workload(f"{n} chunks", n) for n in (256, 2048, 16_384)),
    *(Workload(f"{n} chunks, logprobs", n, logprobs=True) for n in (256, 2048, 16_384)),
    *(
        Workload(f"{n} chunks, token_logprobs", n, flat=True)
        for n in (256, 2048, 16_384)
    ),
    Workload("2048 chunks, tools", 2048, tools=True),
    Workload("2048 chunks, 32,000-token prompt", 2048, prompt=32_000),
    Workload("2048 chunks, --stream-output", 2048, stream_output=True),
)

TOOL = {
    "type": "function",
    "function": {"name": "f", "parameters": {"type": "object", "properties": {}}},
}


def chunk(workload: Workload) -> float:
    """Measure microseconds of CPU per chunk here, the best of three streams."""
    from sglang.srt.entrypoints.openai.protocol import ChatCompletionRequest
    from sglang.srt.managers.io_struct import GenerateReqInput
    from sglang.srt.server_args import ServerArgs

    names = {field.name for field in dataclasses.fields(ServerArgs)}
    # v0.5.10 renamed --stream-output, and makes the text incremental, too.
    only_new_text = "incremental_streaming_output" in names
    flag = "incremental_streaming_output" if only_new_text else "stream_output"
    n = workload.chunks
    text = "word " * n
    logprobs = [(-0.5, i % MODEL_VOCABULARY, "word ") for i in range(n)]
    prompt = list(range(workload.prompt))

    async def generate(*_: Any) -> AsyncIterator[dict[str, Any]]:
        seen: list[tuple[float, int, str]] = []
        output_ids: list[int] = []
        for i in range(n):
            meta_info = {
                "id": "0" * 32,
                "prompt_tokens": workload.prompt,
                "completion_tokens": i + 1,
                "cached_tokens": 0,
                "finish_reason": {"type": "length"} if i == n - 1 else None,
            }
            if workload.logprobs or workload.flat:
                seen.append(logprobs[i])
                meta_info["output_token_logprobs"] = seen
                meta_info["output_token_logprobs_length"] = len(seen)
            if workload.stream_output:
                output_ids = []
            output_ids.append(i % MODEL_VOCABULARY)
            start = 5 * i if workload.stream_output and only_new_text else 0
            yield {
                "text": text[start : 5 * (i + 1)],
                "output_ids": output_ids,
                "prompt_token_ids": prompt,
                "meta_info": meta_info,
            }

    args: dict[str, Any] = {flag: workload.stream_output}
    if workload.tools:
        args["tool_call_parser"] = "qwen25"
    serving = Application(**args).app.state.openai_serving_chat
    serving.tokenizer_manager.generate_request = generate
    request = ChatCompletionRequest(
        messages=[{"role": "user", "content": "-"}],
        stream=True,
        logprobs=workload.logprobs,
        return_token_logprobs=workload.flat,
        tools=[TOOL] if workload.tools else None,
    )

    async def stream() -> tuple[float, int]:
        began = time.process_time()
        size = 0
        async for line in serving._generate_chat_stream(
            GenerateReqInput(input_ids=prompt), request, None
        ):
            size += len(line)
        return time.process_time() - began, size

    repeats = max(1, 4096 // n)
    return 1e6 * min(
        sum(asyncio.run(stream())[0] for _ in range(repeats)) / repeats / n
        for _ in range(3)
    )


def measure() -> dict[str, float]:
    return {f"{workload.name}, µs": chunk(workload) for workload in WORKLOADS}


if __name__ == "__main__":
    title = "CPU time per streamed chunk"
    compare(__file__, __doc__, title, measure, quick=2, full=7)
