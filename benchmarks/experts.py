"""CPU time and bytes of an answer with the experts of each token, against vanilla.

    python benchmarks/experts.py [--quick] [--json FILE]

64 layers, top 8, 16,000 tokens, chat. As in `answers.py`, SGLang's own application is
called over a stand-in for the engine, in alternating processes, and times are from the
engine's result to the last byte. Vanilla gives the experts of the first choice in `sglext`,
which patched answers keep. Needs SGLang in this interpreter; its install is copied, never
changed.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import gc
import json
import statistics
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import report
from application import (
    CHAT,
    EXPERTS,
    LAYERS,
    MODEL_VOCABULARY,
    PROMPT,
    TOP_K,
    Application,
)
from trees import copies, measured

TOKENS = 16_000
REPEATS = 5
FORMATS: dict[str, dict[str, str]] = {
    "int32": {},
    "npy": {"routed_experts_format": "npy"},
}


@cache
def experts() -> str:
    """What the engine gives."""
    import numpy as np

    shape = (TOKENS - 1, LAYERS, TOP_K)
    drawn = np.random.default_rng(7).integers(0, EXPERTS, shape, np.int32)
    return base64.b64encode(drawn.tobytes()).decode()


def result() -> dict[str, Any]:
    """What the tokenizer manager hands on for an answer."""
    n = TOKENS - PROMPT
    return {
        "text": "word " * n,
        "output_ids": [i % MODEL_VOCABULARY for i in range(n)],
        "prompt_token_ids": list(range(PROMPT)),
        "meta_info": {
            "id": "0" * 32,
            "finish_reason": {"type": "length", "length": n},
            "prompt_tokens": PROMPT,
            "weight_version": "default",
            "total_retractions": 0,
            "completion_tokens": n,
            "cached_tokens": 0,
            "e2e_latency": 12.5,
            "routed_experts": experts(),
        },
    }


def measure(stream: bool, asked: dict[str, Any]) -> tuple[float, int]:
    """Milliseconds of CPU of the best answer of a few, and its bytes."""
    application = Application()
    times = []
    for _ in range(REPEATS):
        application.result = result()
        gc.collect()
        body = {**application.smallest(CHAT), "return_routed_experts": True, **asked}
        posted = application.post(CHAT, {**body, "stream": stream})
        status, _, text = asyncio.run(posted)
        if status != 200 or b"routed_experts" not in text:
            raise SystemExit(f"{asked}: {status}, {text[:300]!r}")
        times.append(application.written - application.delivered)
    return min(times) * 1e3, len(text)


def main() -> None:
    """Measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one round")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        figures = {
            f"{'streamed' if stream else 'whole'}, {name}": measure(stream, asked)
            for stream in (False, True)
            for name, asked in FORMATS.items()
        }
        print(json.dumps(figures))
        return

    with tempfile.TemporaryDirectory(prefix="agentcore-bench-") as folder:
        trees = copies(Path(folder))
        rounds = [
            [measured(__file__, tree) for tree in trees]
            for _ in range(1 if options.quick else 5)
        ]
    rows: list[dict[str, str | float]] = []
    for name in rounds[0][0]:
        vanilla, patched = (
            statistics.median(figures[i][name][0] for figures in rounds)
            for i in range(2)
        )
        before, after = (rounds[0][i][name][1] / 1e6 for i in range(2))
        rows.append(
            {
                "answer": name,
                "vanilla_ms": vanilla,
                "patched_ms": patched,
                "ratio": patched / vanilla,
                "vanilla_mb": before,
                "patched_mb": after,
            }
        )
    report.show(
        f"Experts of {TOKENS:,} tokens, {LAYERS} layers, top {TOP_K}",
        rows,
        options.json,
    )


if __name__ == "__main__":
    main()
