"""Throughput and inter-token time of real servers on the CPU, patched and unpatched.

    python benchmarks/serve.py [--quick] [--json FILE]

Both servers run side by side with the scripted model. The loads go to one and the other
in turns, and the waiting server sleeps. Per turn: 16 concurrent streams, with and
without logprobs, then non-streaming requests, 16 at a time. In separate turns: 64
non-streaming answers of 256 tokens with `top_logprobs: 5` that finish together, beside
one stream. Ratios compare the medians over the turns; above 1, the patched server is
faster. Needs SGLang in this interpreter; its install is copied, never changed.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import defaultdict
from contextlib import ExitStack
from itertools import pairwise
from typing import Any

import aiohttp
import report
from trees import copies, server

ARGUMENTS = ("--sleep-on-idle", "--disable-radix-cache")
STREAMS = 16
TOKENS = 128
REQUESTS = 64
CROWD_TOKENS = 256
PREFILL_TOKENS = 64
"""Tokens of the stream after which the prompts of the others are prefilled."""


def body(tokens: int, **more: Any) -> dict[str, Any]:
    """A request for exactly this many tokens."""
    return {
        "model": "m",
        "messages": [{"role": "user", "content": "Count to one hundred."}],
        "temperature": 0,
        "max_tokens": tokens,
        "ignore_eos": True,
        **more,
    }


async def stream(
    session: aiohttp.ClientSession, url: str, tokens: int = TOKENS, **more: Any
) -> list[float]:
    """Return the arrival time of each event of one stream, in seconds."""
    arrived: list[float] = []
    async with session.post(url, json=body(tokens, stream=True, **more)) as answer:
        assert answer.status == 200, await answer.text()
        async for line in answer.content:
            if line.startswith(b"data: {"):
                arrived.append(time.perf_counter())
            elif line.startswith(b"data: [DONE]"):
                return arrived
    raise SystemExit("a stream ended without [DONE]")


async def streams(session: aiohttp.ClientSession, url: str, **more: Any) -> list[float]:
    """Tokens per second of all streams, and inter-token times, p50 and p99, in ms."""
    began = time.perf_counter()
    arrivals = await asyncio.gather(
        *(stream(session, url, **more) for _ in range(STREAMS))
    )
    seconds = time.perf_counter() - began
    gaps = sorted((b - a) * 1e3 for arrived in arrivals for a, b in pairwise(arrived))
    at = statistics.quantiles(gaps, n=100)
    return [STREAMS * TOKENS / seconds, at[49], at[98]]


async def whole(
    session: aiohttp.ClientSession, url: str, at_once: int, tokens: int, **more: Any
) -> float:
    """Measure the non-streaming requests answered per second."""
    slots = asyncio.Semaphore(at_once)

    async def one() -> None:
        async with slots, session.post(url, json=body(tokens, **more)) as answer:
            assert answer.status == 200, await answer.text()
            await answer.read()

    began = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(REQUESTS)))
    return REQUESTS / (time.perf_counter() - began)


def connect() -> aiohttp.ClientSession:
    """Open a session without a limit on concurrent requests."""
    return aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=120),
        connector=aiohttp.TCPConnector(limit=0),
    )


async def crowd(url: str) -> dict[str, float]:
    """Time 64 concurrent responses, and the longest gap of a stream beside them."""
    async with connect() as session:
        arrived, rate = await asyncio.gather(
            stream(session, url, CROWD_TOKENS + 64),
            whole(session, url, REQUESTS, CROWD_TOKENS, logprobs=True, top_logprobs=5),
        )
    return {
        "64 whole answers with top_logprobs: 5, per second": rate,
        "a stream's longest gap beside them, ms": max(
            (b - a) * 1e3 for a, b in pairwise(arrived[PREFILL_TOKENS:])
        ),
    }


async def turn(url: str) -> dict[str, float]:
    async with connect() as session:
        rate, p50, p99 = await streams(session, url)
        logprobs_rate, _, _ = await streams(session, url, logprobs=True)
        return {
            "streamed tokens per second": rate,
            "the same with logprobs": logprobs_rate,
            "inter-token time, p50, ms": p50,
            "inter-token time, p99, ms": p99,
            "non-streaming requests per second": await whole(session, url, STREAMS, 32),
        }


def main() -> None:
    options = report.options(__doc__)

    seen: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with ExitStack() as stack:
        pair = [
            (tree.name, stack.enter_context(server(tree, *ARGUMENTS)))
            for tree in stack.enter_context(copies())
        ]
        loads = [(turn, 6 if options.quick else 40), (crowd, 2 if options.quick else 8)]
        for i, load in [(i, load) for load, turns in loads for i in range(1 + turns)]:
            for name, running in pair if i % 2 else reversed(pair):
                url = f"{running.base_url}/v1/chat/completions"
                for what, value in asyncio.run(load(url)).items():
                    if i > 0:  # the first turn warms up
                        seen[what][name].append(value)

    rows = []
    for what, values in seen.items():
        row = report.compared(
            what, vanilla=values["vanilla"], patched=values["patched"]
        )
        if what.endswith("ms"):
            row["ratio"] = 1 / float(row["ratio"])
        rows.append(row)
    report.show(f"A server under {STREAMS} streams", rows, options.json)


if __name__ == "__main__":
    main()
