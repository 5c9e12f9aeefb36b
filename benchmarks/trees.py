"""Copies of the installed SGLang to measure on: one vanilla, one patched."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

from agentcore_patches import apply, revert


def copies(folder: Path) -> tuple[Path, Path]:
    """Folders that hold a vanilla and a patched `sglang`, ready for PYTHONPATH."""
    spec = importlib.util.find_spec("sglang")
    if spec is None or spec.origin is None:
        raise SystemExit("no SGLang in this interpreter")
    trees = folder / "vanilla", folder / "patched"
    for tree in trees:
        shutil.copytree(Path(spec.origin).parent, tree / "sglang")
        revert(sglang_dir=tree / "sglang")
    apply(sglang_dir=trees[1] / "sglang")
    return trees
