"""Failures as annotations that GitHub Actions shows beside a run."""

from __future__ import annotations

from .report import TITLE, plain_lines
from .results import Report


def render_annotations(report: Report) -> str:
    """A line for each result that makes the run fail; empty if none does."""
    if report.unpatched:
        return _annotation(TITLE, report.unpatched)
    failed = [
        _annotation(f"{TITLE}: {result.name}", "\n".join(plain_lines(result)))
        for result in report.failures
    ]
    if report.error is not None:
        failed.insert(0, _annotation(f"{TITLE}: server", report.error))
    return "\n".join(failed)


def _annotation(title: str, message: str) -> str:
    escaped = _escaped(title).replace(":", "%3A").replace(",", "%2C")
    return f"::error title={escaped}::{_escaped(message)}"


def _escaped(text: str) -> str:
    """Escape a string in a workflow command as GitHub's own toolkit does."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
