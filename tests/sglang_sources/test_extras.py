"""An extra can be deleted: the wheel of what is left patches SGLang, and tests pass."""

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
TESTS = [
    f"tests/unit/test_{name}.py" for name in ("registry", "hooks", "plan", "traces")
]


@pytest.mark.parametrize("extra", registry.extras())
def test_without_the_folders_of_an_extra_the_rest_works(
    extra: str, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    left_out = ("__pycache__", ".*", "build", "dist", "*.egg-info", "benchmarks")
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(*left_out))
    for place in ("patches", "landing"):
        shutil.rmtree(tree / "agentcore_patches" / place / extra.replace("-", "_"))
    run(["pytest", "-q", "-p", "no:cacheprovider", *TESTS], tree, tree)
    package = make_install(VERSION, tmp_path / "sglang", changed_files(VERSION))
    applied = run(
        ["agentcore_patches", "apply", "--with", "all", "--sglang-dir", str(package)],
        tmp_path,
        tree,
    )
    assert extra not in applied
    assert not (package / "srt/agentcore" / extra.replace("-", "_")).exists()


def run(command: list[str], folder: Path, tree: Path) -> str:
    """Run a module of Python in a folder, with a tree on its path; return its output."""
    ran = subprocess.run(
        [sys.executable, "-P", "-m", *command],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(tree), str(tree / "verify")]),
        },
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout
