"""Trains in four ways, and draws what came of it: `make train`.

    python docs/training.py TRAINER_PYTHON [--steps N] [--batch N] [--folder FOLDER]
    python docs/training.py --draw [--folder FOLDER]

Starts SGLang from copies, one of them patched, as `agentcore-patch serve` does; runs
`examples/train_with_trl.py` for each arm in the environment of TRAINER_PYTHON; writes
`training.json` and `training.png` to the folder. `--draw` draws the picture again.
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

from agentcore_patches import api
from agentcore_patches.installs.install import find
from agentcore_verify.launching import Launching, server_options
from agentcore_verify.server import Server

HERE = Path(__file__).parent
EXAMPLES = HERE.parent / "examples"
BUILD = HERE.parent / "build"
MODEL = BUILD / "weather-model"

ARMS = {"exact": True, "text": True, "recomputed": True, "padded": False}
"""The arms in their order, and whether their server is patched."""

Row = dict[str, Any]


# Running.


def train(python: Path, steps: int, batch: int) -> list[Row]:
    """Run all arms, and return a row for each step."""
    if not (MODEL / "config.json").exists():
        print("warming the model up", flush=True)
        _run([python, EXAMPLES / "weather_model.py", MODEL])
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="train-") as folder:
        for patched in (True, False):
            with serving(Path(folder), patched=patched) as url:
                for arm in (arm for arm, needs in ARMS.items() if needs == patched):
                    for row in run_arm(python, url, arm, steps, batch):
                        rows.append(row)
                        step = f"arm {arm}, step {row['step'] + 1} of {steps}"
                        print(f"{step}: mismatch {row['mean']:.1e}", flush=True)
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
        Launching(str(MODEL), sglang_dir=package),
        log=log,
        notify=print,
        package=package,
    )
    with Server(options) as server:
        yield server.base_url


# Drawing.

COLOURS = {
    "exact": "#2a78c2",
    "text": "#e08214",
    "recomputed": "#3d8f4d",
    "padded": "#c43c4e",
}
NAMES = {
    "exact": "exact: IDs, logprobs and prefix from the server",
    "text": "text: the same, history sent as text",
    "recomputed": "recomputed: text tokenized again, the trainer's own logprobs",
    "padded": "padded: text tokenized again, logprobs of a stock stream",
}
GREY = "#808080"
"""Of all lines and texts: readable on white and on black."""


def draw(rows: Sequence[Row], file: Path) -> None:
    """Draw the mismatch and the tokens that were never sampled, by arm and step."""
    from matplotlib import pyplot

    parts = "text.color axes.edgecolor axes.labelcolor xtick.color ytick.color"
    grey: Any = dict.fromkeys(parts.split(), GREY)
    with pyplot.rc_context(grey):
        figure, panels = pyplot.subplots(1, 2, figsize=(8.5, 3.6), layout="constrained")
        for arm in ARMS:
            own = [row for row in rows if row["arm"] == arm]
            steps = [row["step"] for row in own]
            colour = COLOURS[arm]
            if arm != "recomputed":
                panels[0].plot(steps, [row["mean"] for row in own], color=colour)
            if ARMS[arm]:
                shares = [100 * row["never_sampled"] / row["tokens"] for row in own]
                panels[1].plot(steps, shares, color=colour)
            # Each arm is missing from one of the panels, or covered by another.
            panels[0].plot([], color=colour, label=NAMES[arm])
        for panel in panels:
            panel.set_xlabel("step")
        panels[0].set(title="Mean |train logprob - rollout logprob|", yscale="log")
        panels[1].set(title="Tokens that were never sampled, in %")
        legend = panels[0].get_legend_handles_labels()
        figure.legend(*legend, loc="outside lower left", frameon=False)
        figure.savefig(file, transparent=True)


def table(rows: Sequence[Row]) -> str:
    """Return the figures of each arm as a table for the page."""
    lines = [
        "| arm | mean mismatch | largest mismatch | tokens with ratio outside [0.8, 1.25] "
        "| tokens never sampled | trajectories that break | stale tokens |",
        "|---|---|---|---|---|---|---|",
    ]
    for arm, patched in ARMS.items():
        own = [row for row in rows if row["arm"] == arm]
        tokens = sum(row["tokens"] for row in own)

        def mean(name: str, own: list[Row] = own, tokens: int = tokens) -> float:
            return float(sum(row[name] * row["tokens"] for row in own) / tokens)

        cells = [
            f"`{arm}`",
            f"{mean('mean'):.1e}",
            f"{max(row['max'] for row in own):.1e}",
            f"{mean('apart'):.1%}",
        ]
        if patched:
            known = own[0]["broken"] is not None
            broken = sum(row["broken"] or 0 for row in own) / len(own)
            cells += [
                f"{sum(row['never_sampled'] for row in own) / tokens:.1%}",
                f"{broken:.0%}" if known else "not applicable",
                str(sum(sum(row["stale"].values()) for row in own)),
            ]
        else:
            cells += ["unknown"] * 3
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "python", type=Path, nargs="?", help="the trainer's interpreter"
    )
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--folder", type=Path, default=BUILD)
    parser.add_argument("--draw", action="store_true", help="draw the picture again")
    asked = parser.parse_args()
    figures = asked.folder / "training.json"
    if asked.draw:
        rows = json.loads(figures.read_text())
    elif asked.python:
        print("This takes about 5 minutes on two cores.")
        rows = train(asked.python.absolute(), asked.steps, asked.batch)
        lines = ",\n".join(json.dumps(row) for row in rows)
        figures.write_text(f"[\n{lines}\n]\n")
    else:
        parser.error("name the trainer's interpreter, or --draw")
    picture = figures.with_suffix(".png")
    draw(rows, picture)
    print(table(rows))
    print(f"\nThe picture is {picture}, the figures of each step are {figures}.")


if __name__ == "__main__":
    main()
