"""Trains in three ways, and draws what came of it: `make train`.

    python docs/training.py TRAINER_PYTHON [--steps N] [--batch N]
    python docs/training.py --draw

Starts SGLang from copies, one of them patched, by `agentcore-patch serve`; runs
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
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import log10
from pathlib import Path
from typing import Any

from rich.progress import Progress, TimeElapsedColumn

from agentcore_patches import api
from agentcore_patches.installs.install import find
from agentcore_verify.server import HOST, free_port

HERE = Path(__file__).parent
EXAMPLES = HERE.parent / "examples"
FIGURES = HERE / "explanation/training.json"
MODEL = HERE.parent / "build/weather-model"

ARMS = {"exact": True, "text": True, "retokenized": False}
"""The arms in their order, and whether their server is patched."""
START_LIMIT = 300
"""Seconds until a server must answer."""

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
    port = free_port()
    url = f"http://{HOST}:{port}"
    command: list[str | Path] = [
        *(sys.executable, "-m", "agentcore_patches", "serve"),
        *("--sglang-dir", package, "--model", MODEL, "--port", str(port)),
    ]
    log = package.parent / "server.log"
    with log.open("w") as output:
        server = subprocess.Popen(command, stdout=output, stderr=output, env=_env())
    try:
        began = time.monotonic()
        while f"ready at {url}" not in log.read_text(errors="replace"):
            if server.poll() is not None or time.monotonic() - began > START_LIMIT:
                tail = log.read_text(errors="replace")[-3000:]
                sys.exit(f"error: the server did not start:\n{tail}")
            time.sleep(0.2)
        yield url
    finally:
        server.terminate()
        server.wait(60)


def _described(row: Row) -> str:
    return f"arm {row['arm']}: reward {row['reward']:.2f}, mismatch {row['mean']:.1e}"


# Drawing.

COLOURS = {"exact": "#2a78c2", "text": "#e08214", "retokenized": "#c43c4e"}
NAMES = {
    "exact": "exact: IDs, logprobs and prefix from the server",
    "text": "text: the same, history sent as text",
    "retokenized": "retokenized: stock server, text tokenized again",
}
STYLE = """\
<style>
.ground { fill: #ffffff } text { fill: #222222 } .grid { stroke: #dddddd }
@media (prefers-color-scheme: dark) {
.ground { fill: #1e2129 } text { fill: #e6e6e6 } .grid { stroke: #444a57 }
}
</style>"""
WIDTH, HEIGHT, MARGIN, TOP = 330, 190, 58, 34
LEAST = 1e-8
"""The least mismatch that the picture shows, on its logarithmic scale."""


def picture(rows: Sequence[Row]) -> str:
    """Draw the reward and the mismatch of each arm by step, in light and in dark."""
    width = 2 * (WIDTH + MARGIN) + 24
    height = TOP + HEIGHT + 48 + 22 * len(ARMS)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="13">',
        STYLE,
        f'<rect class="ground" width="{width}" height="{height}"/>',
        *_panel(rows, 0, "reward", "Reward", [(v / 4, f"{v / 4:g}") for v in range(5)]),
        *_panel(
            [{**row, "log": log10(max(row["mean"], LEAST))} for row in rows],
            WIDTH + MARGIN,
            "log",
            "Mean |train logprob - rollout logprob|",
            [(power, f"1e{power}") for power in range(-8, 2, 2)],
        ),
    ]
    for number, arm in enumerate(ARMS):
        y = TOP + HEIGHT + 56 + 22 * number
        parts += [
            f'<line x1="{MARGIN}" x2="{MARGIN + 26}" y1="{y - 4}" y2="{y - 4}" '
            f'stroke="{COLOURS[arm]}" stroke-width="3"/>',
            f'<text x="{MARGIN + 34}" y="{y}">{NAMES[arm]}</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])


def _panel(
    rows: Sequence[Row],
    left: int,
    value: str,
    title: str,
    ticks: Sequence[tuple[float, str]],
) -> list[str]:
    """Draw one value of all arms by step."""
    low, high = ticks[0][0], ticks[-1][0]
    last = max(1, *(row["step"] for row in rows))
    left += MARGIN

    def y(at: float) -> float:
        return TOP + HEIGHT * (high - at) / (high - low)

    parts = [f'<text x="{left}" y="20" font-weight="bold">{title}</text>']
    for at, label in ticks:
        parts += [
            f'<line class="grid" x1="{left}" x2="{left + WIDTH}" y1="{y(at):.1f}" '
            f'y2="{y(at):.1f}"/>',
            f'<text x="{left - 8}" y="{y(at) + 4:.1f}" text-anchor="end">{label}</text>',
        ]
    for arm in ARMS:
        points = " ".join(
            f"{left + WIDTH * row['step'] / last:.1f},{y(row[value]):.1f}"
            for row in rows
            if row["arm"] == arm
        )
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{COLOURS[arm]}" '
            'stroke-width="2"/>'
        )
    bottom = TOP + HEIGHT + 18
    return [
        *parts,
        f'<text x="{left}" y="{bottom}">step 0</text>',
        f'<text x="{left + WIDTH}" y="{bottom}" text-anchor="end">{last}</text>',
    ]


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
    FIGURES.with_suffix(".svg").write_text(picture(rows))
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
