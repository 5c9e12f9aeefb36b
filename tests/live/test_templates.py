"""Turns by the chat templates of model families, in the interpreter that has SGLang."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from agentcore_verify import cpu
from tests.helpers.bytecode import Bytecode
from tests.helpers.chat_templates import FAMILIES
from tests.helpers.servers import Trees
from tests.live import in_templates

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def outcomes(
    sglang_python: Path, trees: Trees, bytecode: Bytecode
) -> dict[str, str | None]:
    """The error, or None, of each test of `in_templates` and of each family."""
    path = os.pathsep.join(map(str, (trees.patched, cpu.SITE, ROOT)))
    done = subprocess.run(
        [sglang_python, "-m", in_templates.__name__],
        env={**os.environ, **cpu.ENV, **bytecode.env, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, str | None] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(
    "name",
    [
        *(name for name in vars(in_templates) if name.startswith("test_")),
        *map(str, FAMILIES),
    ],
)
def test_by_template(outcomes: dict[str, str | None], name: str) -> None:
    assert outcomes[name] is None, outcomes[name]
