"""Wall time of the command, whole process, against `import sglang`.

    python benchmarks/install.py [--quick] [--json FILE]

All are run in turns, so that a busy machine slows them alike; ratios are of the medians.
Needs SGLang in this interpreter; its install is copied, never changed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import report
from trees import copies

BARS = {"apply": 0.8, "apply, nothing to do": 0.12, "status": 0.12}


def timed(tree: Path, *command: str) -> float:
    """Seconds that a command of this interpreter takes."""
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, *command],
        env={**os.environ, "PYTHONPATH": str(tree)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    return time.perf_counter() - began


def main() -> None:
    """Measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory(prefix="agentcore-bench-") as folder:
        vanilla, patched = copies(Path(folder))
        fresh = Path(folder) / "fresh"
        command = ("-m", "agentcore_patches")
        target = ("--sglang-dir", str(patched / "sglang"))
        times: dict[str, list[float]] = {}
        for _ in range(4 if options.quick else 12):
            shutil.copytree(vanilla, fresh)
            apply = (*command, "apply", "--sglang-dir", str(fresh / "sglang"))
            for name, tree, line in (
                ("import sglang", vanilla, ("-c", "import sglang")),
                ("python -c pass", vanilla, ("-c", "pass")),
                ("apply", vanilla, apply),
                ("apply, nothing to do", vanilla, (*command, "apply", *target)),
                ("status", vanilla, (*command, "status", *target)),
            ):
                times.setdefault(name, []).append(timed(tree, *line))
            shutil.rmtree(fresh)
    medians = {name: statistics.median(all_[1:]) for name, all_ in times.items()}
    rows = [
        {
            "command": name,
            "median_ms": median * 1e3,
            "of_import": median / medians["import sglang"],
            "bar": str(BARS.get(name, "")),
        }
        for name, median in medians.items()
    ]
    report.show("The command against `import sglang`", rows, options.json)


if __name__ == "__main__":
    main()
