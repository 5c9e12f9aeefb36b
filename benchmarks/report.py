"""Show the figures of the benchmarks."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

Row = dict[str, str | float]


def is_quick(docstring: str) -> bool:
    """Parse the option of a benchmark; True if it is there."""
    parser = argparse.ArgumentParser(description=docstring.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    return bool(parser.parse_args().quick)


def compared(what: str, **figures: Sequence[float]) -> Row:
    """Return a row: the medians of two series, and the second divided by the first."""
    medians = {name: statistics.median(found) for name, found in figures.items()}
    first, second = medians.values()
    return {"what": what, **medians, "ratio": second / first}


def show(title: str, rows: Sequence[Row]) -> None:
    """Print a table of the rows."""
    table = Table(title=title, title_justify="left")
    for name in rows[0]:
        numeric = not isinstance(rows[0][name], str)
        table.add_column(name, justify="right" if numeric else "left")
    for row in rows:
        table.add_row(
            *(f"{v:.3f}" if isinstance(v, float) else str(v) for v in row.values())
        )
    Console().print(table)
