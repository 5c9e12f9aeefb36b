"""Copies of the installed SGLang to measure on: one vanilla, one patched."""

from __future__ import annotations

import shutil
from pathlib import Path

from agentcore_patches import apply, revert
from agentcore_patches.install import find
from agentcore_patches.patches.versions import SUPPORTED_VERSIONS


def copies(folder: Path) -> tuple[Path, Path]:
    """Folders that hold a vanilla and a patched `sglang`, ready for PYTHONPATH."""
    package = find(supported=SUPPORTED_VERSIONS).package
    trees = folder / "vanilla", folder / "patched"
    for tree in trees:
        shutil.copytree(package, tree / "sglang")
        revert(sglang_dir=tree / "sglang")
    apply(sglang_dir=trees[1] / "sglang")
    return trees
