"""An extra can be deleted: what is left patches SGLang, and its tests pass."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agentcore_patches.patches import registry
from tests.helpers.planning import VERSION
from tests.helpers.wheels import make_install
from tests.sglang_sources.releases import changed_files

ROOT = Path(__file__).parents[2]
TESTS = ("tests/unit/test_registry.py", "tests/unit/test_hooks.py")


@pytest.mark.parametrize("extra", registry.extras())
def test_without_the_folders_of_an_extra_the_rest_works(
    extra: str, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    for name in ("agentcore_patches", "verify", "tests/unit", "tests/helpers"):
        shutil.copytree(
            ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__")
        )
    for file in ("pyproject.toml", "tests/__init__.py", "tests/conftest.py"):
        shutil.copy(ROOT / file, copy / file)
    for folder in ("patches", "landing"):
        shutil.rmtree(copy / "agentcore_patches" / folder / extra.replace("-", "_"))
    package = make_install(VERSION, tmp_path / "site", changed_files(VERSION))

    for command in (
        # The order of writing may name a file that only the extra changes.
        ["pytest", "-q", *TESTS, "-k", "not every_file_in_the_writing_order"],
        ["agentcore_patches", "apply", "--with", "all", "--sglang-dir", str(package)],
    ):
        ran = subprocess.run(
            [sys.executable, "-m", *command],
            cwd=copy,
            env={**os.environ, "PYTHONPATH": f"{copy}:{copy / 'verify'}"},
            capture_output=True,
            text=True,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
    assert extra not in ran.stdout
    assert not (package / "srt/agentcore" / extra.replace("-", "_")).exists()
