"""Trains in three ways, and draws what came of it: `make train`.

    python docs/training.py TRAINER_PYTHON [--steps N] [--batch N]
    python docs/training.py --draw

Starts SGLang from copies, one of them patched, as `agentcore-patch serve` does; runs
`examples/train_with_trl.py` for each arm in the environment of TRAINER_PYTHON; writes
`docs/explanation/training.json` and the pictures. `--draw` draws the pictures again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.progress import Progress, TimeElapsedColumn

from agentcore_patches import api
from agentcore_patches.installs.install import find
from agentcore_verify.launching import server_options
from agentcore_verify.server import Server

HERE = Path(__file__).parent
EXAMPLES = HERE.parent / "examples"
FIGURES = HERE / "explanation/training.json"
MODEL = HERE.parent / "build/weather-model"

ARMS = {"exact": True, "text": True, "retokenized": False}
"""The arms in their order, and whether their server is patched."""

Row = dict[str, Any]


# Running.


def train(python: Path, steps: int, batch: int) -> list[Row]:
    """Run all arms, and return a row for each step."""
    rows: list[Row] = []
    with (
        Progress(*Progress.get_default_columns(), TimeElapsedColumn()) as progress,
        tempfile.TemporaryDirectory(prefix="train-") as folder,
    ):
        if not (MODEL / "config.json").exists():
            task = progress.add_task("warming the model up", total=None)
            _run([python, EXAMPLES / "weather_model.py", MODEL])
            progress.update(task, total=1, completed=1)
        for patched in (True, False):
            arms = [arm for arm, needs in ARMS.items() if needs == patched]
            name = "patched" if patched else "stock"
            task = progress.add_task(f"starting the {name} server", total=None)
            with serving(Path(folder), patched=patched) as url:
                progress.update(task, total=1, completed=1)
                for arm in arms:
                    task = progress.add_task(f"arm {arm}", total=steps)
                    for row in run_arm(python, url, arm, steps, batch):
                        rows.append(row)
                        progress.update(task, advance=1, description=_described(row))
    return rows


def run_arm(python: Path, url: str, arm: str, steps: int, batch: int) -> Iterator[Row]:
    """Train by one arm, and yield the row of each step."""
    command: list[str | Path] = [
        *(python, EXAMPLES / "train_with_trl.py", MODEL, "--url", url, "--arm", arm),
        *("--steps", str(steps), "--batch", str(batch)),
    ]
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=_env()
        ) as running,
    ):
        assert running.stdout
        for line in running.stdout:
            if line.startswith('{"arm"'):
                yield json.loads(line)
        if running.wait():
            errors.seek(0)
            sys.exit(f"error: arm {arm} failed:\n{errors.read()[-3000:]}")


def _run(command: Sequence[str | Path]) -> None:
    ran = subprocess.run(command, capture_output=True, text=True, env=_env())
    if ran.returncode:
        sys.exit(f"error: {command[1]} failed:\n{ran.stderr[-3000:]}")


def _env() -> dict[str, str]:
    return {
        **os.environ,
        "CUDA_VISIBLE_DEVICES": "",
        "HF_HUB_OFFLINE": "1",
        # The model is too small to be worth threads.
        "OMP_NUM_THREADS": "1",
        "TRL_EXPERIMENTAL_SILENCE": "1",
    }


@contextmanager
def serving(folder: Path, *, patched: bool) -> Iterator[str]:
    """Serve the model by a copy of SGLang, and yield the URL."""
    package = folder / ("patched" if patched else "stock") / "sglang"
    # With its bytecode, which saves 15 s of CPU time.
    shutil.copytree(find().package, package)
    api.revert(sglang_dir=package)
    if patched:
        api.apply(sglang_dir=package)
    log = package.parent / "server.log"
    options = server_options(
        str(MODEL), log=log, notify=print, sglang_dir=package, package=package
    )
    with Server(options) as server:
        yield server.base_url


def _described(row: Row) -> str:
    return f"arm {row['arm']}: reward {row['reward']:.2f}, mismatch {row['mean']:.1e}"


# Drawing.

COLOURS = {"exact": "#2a78c2", "text": "#e08214", "retokenized": "#c43c4e"}
NAMES = {
    "exact": "exact: IDs, logprobs and prefix from the server",
    "text": "text: the same, history sent as text",
    "retokenized": "retokenized: stock server, text tokenized again",
}
GREY = "#808080"
"""Of all lines and texts: readable on white and on black."""


def draw(rows: Sequence[Row], file: Path) -> None:
    """Draw the reward and the mismatch of each arm by step."""
    from matplotlib import pyplot

    parts = "text.color axes.edgecolor axes.labelcolor xtick.color ytick.color"
    grey: Any = dict.fromkeys(parts.split(), GREY)
    with pyplot.rc_context(grey):
        figure, panels = pyplot.subplots(1, 2, figsize=(8.5, 3.6), layout="constrained")
        for panel, value in zip(panels, ("reward", "mean"), strict=True):
            for arm in ARMS:
                own = [row for row in rows if row["arm"] == arm]
                panel.plot(
                    [row["step"] for row in own],
                    [row[value] for row in own],
                    color=COLOURS[arm],
                    label=NAMES[arm],
                )
            panel.set_xlabel("step")
        panels[0].set(title="Reward", ylim=(0, 1))
        panels[1].set(title="Mean |train logprob - rollout logprob|", yscale="log")
        legend = panels[0].get_legend_handles_labels()
        figure.legend(*legend, loc="outside lower left", frameon=False)
        figure.savefig(file, transparent=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "python", type=Path, nargs="?", help="the trainer's interpreter"
    )
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--draw", action="store_true", help="draw the figures again")
    asked = parser.parse_args()
    if asked.draw:
        rows = json.loads(FIGURES.read_text())
    elif asked.python:
        rows = train(asked.python.absolute(), asked.steps, asked.batch)
        lines = ",\n".join(json.dumps(row) for row in rows)
        FIGURES.write_text(f"[\n{lines}\n]\n")
    else:
        parser.error("name the trainer's interpreter, or --draw")
    draw(rows, FIGURES.with_suffix(".png"))
    print(table(rows))


def table(rows: Sequence[Row]) -> str:
    """Return the figures of each arm as a table for the page."""
    lines = [
        "| arm | reward, first step | reward, last 5 steps | mean mismatch | "
        "largest mismatch | tokens with ratio outside [0.8, 1.25] | "
        "trajectories that break | stale tokens |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for arm in ARMS:
        own = [row for row in rows if row["arm"] == arm]
        tokens = sum(row["tokens"] for row in own)

        def mean(name: str, own: list[Row] = own, tokens: int = tokens) -> float:
            return float(sum(row[name] * row["tokens"] for row in own) / tokens)

        known = own[0]["broken"] is not None
        broken = sum(row["broken"] or 0 for row in own) / len(own)
        stale = sum(sum((row["stale"] or {}).values()) for row in own)
        reward = sum(row["reward"] for row in own[-5:]) / len(own[-5:])
        cells = [
            f"`{arm}`",
            f"{own[0]['reward']:.2f}",
            f"{reward:.2f}",
            f"{mean('mean'):.1e}",
            f"{max(row['max'] for row in own):.1e}",
            f"{mean('apart'):.1%}",
            f"{broken:.0%}" if known else "unknown",
            str(stale) if known else "unknown",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
