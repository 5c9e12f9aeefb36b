"""The patched module's own classes, in the interpreter that has SGLang."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from agentcore_verify import cpu
from tests.helpers.servers import Trees
from tests.live import in_sglang


@pytest.fixture(scope="session")
def outcomes(sglang_python: Path, trees: Trees) -> dict[str, str | None]:
    """The error, or None, of each test in `in_sglang`."""
    path = os.pathsep.join(map(str, (trees.patched, cpu.SITE)))
    done = subprocess.run(
        [sglang_python, in_sglang.__file__],
        env={**os.environ, **cpu.ENV, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, str | None] = json.loads(done.stdout.splitlines()[-1])
    print(done.stderr)
    return found


@pytest.mark.parametrize(
    "name", [name for name in vars(in_sglang) if name.startswith("test_")]
)
def test_in_sglang(outcomes: dict[str, str | None], name: str) -> None:
    assert outcomes[name] is None, outcomes[name]
