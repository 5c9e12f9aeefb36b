"""What a user has: the built package, and places to install it in."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clean copy of the project."""
    made = shutil.ignore_patterns(
        *("__pycache__", ".*", "build", "dist", "*.egg-info"),
    )
    return shutil.copytree(ROOT, tmp_path_factory.mktemp("tree") / "tree", ignore=made)


@pytest.fixture(scope="session")
def dist(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist and the wheel that `python -m build` makes of it."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--outdir", folder]
    done = subprocess.run([*command, tree], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="session")
def with_dist(dist: Path) -> dict[str, str]:
    """Environment in which pip and uv find the built package by its name."""
    found = {
        name: f"{os.environ.get(name, '')} {dist}".strip()
        for name in ("PIP_FIND_LINKS", "UV_FIND_LINKS")
    }
    return {**found, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
