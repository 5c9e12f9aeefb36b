"""Copies of the installed SGLang to measure: one unpatched, one patched."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import report

from agentcore_patches import apply, revert
from agentcore_patches.installs.install import find
from agentcore_verify import cpu
from agentcore_verify.scripted_model import ensure_scripted_model
from agentcore_verify.server import Server, ServerOptions

ROOT = Path(__file__).resolve().parents[1]


@contextmanager
def copies() -> Iterator[tuple[Path, Path]]:
    """Folders for PYTHONPATH with an unpatched and a patched `sglang`."""
    with tempfile.TemporaryDirectory(prefix="agentcore-bench-") as folder:
        vanilla, patched = Path(folder) / "vanilla", Path(folder) / "patched"
        for tree in (vanilla, patched):
            shutil.copytree(find().package, tree / "sglang")
            revert(sglang_dir=tree / "sglang")
        apply(sglang_dir=patched / "sglang", extras=["all"])
        yield vanilla, patched


def measured(script: str, tree: Path) -> Any:
    """Run a benchmark in a process of its own on `tree`; return its JSON."""
    env = {**os.environ, **cpu.ENV, "PYTHONPATH": f"{tree}:{cpu.SITE}:{ROOT}"}
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


def compare(
    script: str,
    docstring: str,
    title: str,
    measure: Callable[[], Mapping[str, float]],
    *,
    quick: int,
    full: int,
) -> None:
    """Run a benchmark: call `measure` on each of `copies` in turn.

    `quick` and `full` are the numbers of rounds.
    """
    if sys.argv[1:] == ["--child"]:
        print(json.dumps(measure()))
        return
    options = report.options(docstring)
    count = quick if options.quick else full
    with copies() as trees:
        found = [[measured(script, tree) for tree in trees] for _ in range(count)]
    rows = [
        report.compared(
            name,
            vanilla=[vanilla[name] for vanilla, _ in found],
            patched=[patched[name] for _, patched in found],
        )
        for name in found[0][0]
    ]
    report.show(title, rows, options.json)


def server(tree: Path, *args: str) -> Server:
    """A server with the scripted model on the SGLang in `tree`, not yet started."""
    python = Path(sys.executable)
    return Server(
        ServerOptions(
            python=python,
            model=ensure_scripted_model(python),
            log=tree.with_suffix(".log"),
            args=args,
            cpu=True,
            pythonpath=(tree,),
        )
    )
