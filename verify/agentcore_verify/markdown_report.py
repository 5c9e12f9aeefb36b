"""The verdicts on the levels as a table in Markdown."""

from __future__ import annotations

from .report import level_verdict
from .results import Report


def render_markdown(report: Report) -> str:
    """A heading and one row; the rows of several servers make a matrix."""
    heads = ["server", *(one.level for one in report.levels)]
    row = [
        str(report.server),
        *(level_verdict(report, one) for one in report.levels),
    ]
    lines = (heads, ["---"] * len(heads), row)
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
