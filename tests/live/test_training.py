"""A few steps of `examples/train_with_trl.py`, on a patched server."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.helpers.servers import Launch, Trees

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PYTHON = ROOT / "build/train/bin/python"

LIMIT = 1e-3
"""Largest difference between the trainer's and the server's logprob of a token."""

pytestmark = pytest.mark.skipif(
    not PYTHON.exists(),
    reason="no environment with TRL in build/train: `make test` creates it",
)


def run(*command: str | Path) -> str:
    """Run an example in the environment with TRL; return its output."""
    quiet = {"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(
        [PYTHON, *command],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, **quiet},
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    return ran.stdout


def test_the_trainer_has_the_logprobs_of_the_server(
    launch: Launch, trees: Trees, tmp_path: Path
) -> None:
    model = tmp_path / "model"
    # Just enough training to call the tool.
    run(EXAMPLES / "weather_model.py", model, "--steps", "120")
    with launch(trees.patched, model=model, mirror_sampler=False) as server:
        printed = run(
            *(EXAMPLES / "train_with_trl.py", model, "--url", server.base_url),
            *("--arm", "exact", "--steps", "3", "--batch", "16"),
        )
    rows = [json.loads(one) for one in printed.splitlines() if one.startswith('{"arm"')]
    assert [row["step"] for row in rows] == [0, 1, 2]
    for row in rows:
        assert row["turns"] > 1.5, row
        assert row["max"] < LIMIT, row
        assert (row["apart"], row["broken"], row["stale"]) == (0, 0, {}), row
