"""Show the figures of the benchmarks."""

from __future__ import annotations

import argparse
import json
import platform
import statistics
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from rich.console import Console
from rich.table import Table

Row = dict[str, str | float]


def options(docstring: str) -> argparse.Namespace:
    """Parse the options of a benchmark, `quick` and `json`."""
    parser = argparse.ArgumentParser(description=docstring.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    return parser.parse_args()


def compared(what: str, **figures: Sequence[float]) -> Row:
    """Return a row: the medians of two series, and the second divided by the first."""
    medians = {name: statistics.median(found) for name, found in figures.items()}
    first, second = medians.values()
    return {"what": what, **medians, "ratio": second / first}


def show(title: str, rows: Sequence[Row], file: Path | None) -> None:
    """Print a table of the rows and write them, with machine and date, as JSON."""
    table = Table(title=title, title_justify="left")
    for name in rows[0]:
        numeric = not isinstance(rows[0][name], str)
        table.add_column(name, justify="right" if numeric else "left")
    for row in rows:
        table.add_row(
            *(f"{v:.3f}" if isinstance(v, float) else str(v) for v in row.values())
        )
    Console().print(table)
    if file is not None:
        machine = f"{platform.machine()}, Python {platform.python_version()}"
        document = {
            "title": title,
            "date": date.today().isoformat(),
            "machine": machine,
            "rows": list(rows),
        }
        file.write_text(json.dumps(document, indent=2) + "\n")
