"""The report of an audit: a table on the terminal, an SVG picture, or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from agentcore_patches.shell.json_output import as_json

from ..report import SVG_WIDTH, drawn, picture, separated, wrapped
from .results import Audit, Finding, State

TITLE = "agentcore-patch audit"

_STYLES = {
    State.FOUND: "bold red",
    State.TOLERATED: "yellow",
    State.NOT_CHECKED: "dim",
    State.CLEAN: "green",
}
_MIN_WIDTH = 60


def render_json(audit: Audit) -> str:
    """The document, indented. Later versions may add keys, but remove none."""
    return json.dumps(as_json(audit), indent=2)


def render_table(
    audit: Audit, width: int = 80, *, colour: bool = False, verbose: bool = False
) -> str:
    """A table of all findings, and below it the details of each that has a count.

    With `verbose`, also the meaning of the others.
    """
    width = max(width, _MIN_WIDTH)
    return drawn(_contents(audit, width, verbose=verbose), width, colour=colour)


def render_svg(audit: Audit) -> str:
    return picture(_contents(audit, SVG_WIDTH), TITLE)


def _contents(audit: Audit, width: int, *, verbose: bool = False) -> RenderableType:
    parts: list[RenderableType] = [
        wrapped(_heading(audit), width),
        _table(audit),
        *_details(audit, width, verbose=verbose),
    ]
    if audit.notes:
        parts.append(wrapped("\n".join(audit.notes), width))
    parts.append(_verdict(audit, width))
    return separated(parts)


def _heading(audit: Audit) -> str:
    names = ", ".join(audit.files[:3]) + (", ..." if len(audit.files) > 3 else "")
    return (
        f"{names}: {audit.turns:,} turns, {audit.answers:,} answers, "
        f"{audit.tokens:,} tokens"
    )


def _table(audit: Audit) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("LOOKED FOR", no_wrap=True)
    table.add_column("STATE", no_wrap=True)
    table.add_column("COUNT", no_wrap=True, justify="right")
    table.add_column("OF", no_wrap=True)
    table.add_column("SHARE", no_wrap=True, justify="right")
    for row in audit.findings:
        state = row.state.value
        shown = state.upper() if row.state is State.FOUND else state
        counted = row.state is not State.NOT_CHECKED
        table.add_row(
            row.name,
            Text(shown, _STYLES[row.state]),
            f"{row.count:,}" if counted else "",
            f"{row.of:,} {row.unit}" if counted else "",
            f"{_percent(row)}{' of tokens' if row.tokens else ''}" if counted else "",
        )
    return table


def _percent(row: Finding) -> str:
    return "0 %" if row.share == 0 else f"{100 * row.share:.3g} %"


def _details(audit: Audit, width: int, *, verbose: bool) -> Iterator[RenderableType]:
    for row in audit.findings:
        if row.count or verbose:
            parts: list[RenderableType] = [
                Text(f"{row.name}: {row.state.value}", _STYLES[row.state]),
                wrapped(row.meaning, width),
            ]
            lines = [*_seen(row), f"What to do: {row.remedy}"] if row.count else []
            if lines:
                parts.append(wrapped("\n".join(lines), width))
            yield Group(*parts)


def _seen(row: Finding) -> Iterator[str]:
    if row.tokens is not None:
        yield f"{row.tokens:,} of {row.of_tokens:,} tokens differ."
    if row.causes:
        causes = (f"{cause} ({count:,})" for cause, count in row.causes.items())
        yield f"Causes: {', '.join(causes)}."
    if row.first:
        session = f", session {row.first.session}" if row.first.session else ""
        choice = f", choice {row.first.choice}" if row.first.choice else ""
        seen = f": {row.first.seen}" if row.first.seen else ""
        yield f"First in {row.first.place}{session}{choice}{seen}"


def _verdict(audit: Audit, width: int) -> Text:
    found = [row.name for row in audit.findings if row.state is State.FOUND]
    word = "CLEAN" if audit.clean else "FOUND"
    names = ", ".join(found) or "nothing was found"
    more = "" if audit.clean else "\nSee `agentcore-patch docs audit`."
    text = wrapped(f"{word}: {names} ({audit.seconds:.1f} s).{more}", width)
    text.stylize(f"bold {'green' if audit.clean else 'red'}", 0, len(word))
    return text
