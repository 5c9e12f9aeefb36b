"""Runs SGLang without a GPU and without CUDA libraries."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

SITE = Path(__file__).resolve().parent
"""Folder with a `sitecustomize.py`, for the server's PYTHONPATH."""

ENV: Mapping[str, str] = {
    "SGLANG_USE_CPU_ENGINE": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    # Otherwise SGLang compiles functions at the first request: 18 s on two cores.
    "TORCHDYNAMO_DISABLE": "1",
    # SGLang's processes share what the first one imported: a third of the CPU time.
    "AGENTCORE_FORK": "1",
    # Threads that spin while they wait slow down the server's other processes.
    "OMP_WAIT_POLICY": "PASSIVE",
}
"""Environment variables of a server without a GPU."""

TINY_MODEL_ENV: Mapping[str, str] = {"OMP_NUM_THREADS": "1"}
"""More variables for tiny models, whose products are too small for several threads."""

ARGS: tuple[str, ...] = (
    *("--device", "cpu"),
    *("--attention-backend", "torch_native"),
    *("--sampling-backend", "pytorch"),
    # xgrammar, the default, cannot mask logits on the CPU and crashes the server.
    *("--grammar-backend", "llguidance"),
    *("--dtype", "float32"),
    *("--mem-fraction-static", "0.3"),
    *("--max-total-tokens", "16384"),
    # The default, 4,096, takes 670 MB, which are zeroed at each start.
    *("--max-running-requests", "256"),
    "--disable-cuda-graph",
    "--disable-overlap-schedule",
    "--skip-server-warmup",
    # Otherwise an idle scheduler keeps a core busy.
    "--sleep-on-idle",
)
"""Arguments of a server without a GPU; later arguments override them."""


def is_needed(python: Path) -> bool:
    """True if the PyTorch of an interpreter finds no GPU."""
    code = "import sys, torch; sys.exit(torch.cuda.is_available())"
    return subprocess.run([python, "-c", code], capture_output=True).returncode == 0
