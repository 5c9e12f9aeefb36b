"""CPU time and bytes of a response with routed experts, patched against unpatched.

    python benchmarks/experts.py [--quick] [--json FILE]

64 layers, top 8, 16,000 tokens, chat. As in `answers.py`, SGLang's own application runs
with a stand-in engine, in alternating processes. Times are from the engine's result to
the last byte. Unpatched SGLang returns the experts of the first choice in `sglext`,
which patched responses keep. Needs SGLang in this interpreter; its install is copied,
never changed.
"""

from __future__ import annotations

import asyncio
import base64
import gc
from functools import cache
from typing import Any

from application import (
    CHAT,
    EXPERTS,
    LAYERS,
    PROMPT,
    TOP_K,
    Application,
    result,
)
from trees import compare

TOKENS = 16_000
REPEATS = 5
FORMATS: dict[str, dict[str, str]] = {
    "int32": {},
    "npy": {"routed_experts_format": "npy"},
}


@cache
def experts() -> str:
    import numpy as np

    shape = (TOKENS - 1, LAYERS, TOP_K)
    drawn = np.random.default_rng(7).integers(0, EXPERTS, shape, np.int32)
    return base64.b64encode(drawn.tobytes()).decode()


def answer(stream: bool, asked: dict[str, Any]) -> tuple[float, int]:
    """Measure the fastest of a few responses: milliseconds of CPU, and its bytes."""
    application = Application()
    times = []
    for _ in range(REPEATS):
        application.result = result(TOKENS - PROMPT, routed_experts=experts())
        gc.collect()
        body = {**application.smallest(CHAT), "return_routed_experts": True, **asked}
        posted = application.post(CHAT, {**body, "stream": stream})
        status, _, text = asyncio.run(posted)
        if status != 200 or b"routed_experts" not in text:
            raise SystemExit(f"{asked}: {status}, {text[:300]!r}")
        times.append(application.written - application.delivered)
    return min(times) * 1e3, len(text)


def measure() -> dict[str, float]:
    figures = {}
    for stream in (False, True):
        for name, asked in FORMATS.items():
            what = f"{'streamed' if stream else 'whole'}, {name}"
            milliseconds, size = answer(stream, asked)
            figures[f"{what}, ms"] = milliseconds
            figures[f"{what}, MB"] = size / 1e6
    return figures


if __name__ == "__main__":
    title = f"Experts of {TOKENS:,} tokens, {LAYERS} layers, top {TOP_K}"
    compare(__file__, __doc__, title, measure, quick=1, full=5)
