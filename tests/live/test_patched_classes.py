"""The patched module's own classes, in the interpreter that has SGLang."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from agentcore_verify import cpu
from tests.helpers.bytecode import Bytecode
from tests.helpers.servers import Trees
from tests.live import in_sglang, in_tokenizer_manager

MODULES = (in_sglang, in_tokenizer_manager)
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def outcomes(
    sglang_python: Path, trees: Trees, bytecode: Bytecode
) -> dict[str, str | None]:
    """The error, or None, of each test in `MODULES`, after the module's name."""
    path = os.pathsep.join(map(str, (trees.patched, cpu.SITE, ROOT)))
    found: dict[str, str | None] = {}
    for module in MODULES:
        done = subprocess.run(
            [sglang_python, "-m", module.__name__],
            env={**os.environ, **cpu.ENV, **bytecode.env, "PYTHONPATH": path},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        print(done.stderr)
        for name, outcome in json.loads(done.stdout.splitlines()[-1]).items():
            found[f"{module.__name__}.{name}"] = outcome
    return found


@pytest.mark.parametrize(
    "name",
    [
        f"{module.__name__}.{name}"
        for module in MODULES
        for name in vars(module)
        if name.startswith("test_")
    ],
)
def test_in_sglang(outcomes: dict[str, str | None], name: str) -> None:
    assert outcomes[name] is None, outcomes[name]
