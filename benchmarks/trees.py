"""Copies of the installed SGLang to measure on: one vanilla, one patched."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from agentcore_patches import apply, revert
from agentcore_patches.install import find
from agentcore_patches.patches.releases import SUPPORTED_VERSIONS
from agentcore_verify import cpu


def copies(folder: Path, *selections: tuple[str, ...]) -> tuple[Path, ...]:
    """Folders that hold a `sglang`, ready for PYTHONPATH.

    A vanilla one, one with all patches, and one with each of `selections` alone.
    """
    package = find(supported=SUPPORTED_VERSIONS).package
    trees = [folder / "vanilla", folder / "patched"]
    trees += [folder / "+".join(selection) for selection in selections]
    for tree in trees:
        shutil.copytree(package, tree / "sglang")
        revert(sglang_dir=tree / "sglang")
    apply(sglang_dir=trees[1] / "sglang")
    for tree, selection in zip(trees[2:], selections, strict=True):
        apply(sglang_dir=tree / "sglang", only=selection)
    return tuple(trees)


def measured(script: str, tree: Path) -> Any:
    """What a benchmark prints as JSON in a process of its own, on the SGLang in `tree`."""
    env = {**os.environ, **cpu.ENV, "PYTHONPATH": f"{tree}:{cpu.SITE}"}
    done = subprocess.run(
        [sys.executable, script, "--child"],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"the measurement failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])
