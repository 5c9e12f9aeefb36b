"""The report of an audit: a table on the terminal, an SVG picture, or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from agentcore_patches.shell.json_output import as_json

from ..report import Lines, Page, plain_table, verdict_text
from .results import Audit, Finding, State

TITLE = "agentcore-patch audit"

_STYLES = {
    State.FOUND: "bold red",
    State.TOLERATED: "yellow",
    State.NOT_CHECKED: "dim",
    State.CLEAN: "green",
}


def render_json(audit: Audit) -> str:
    """The document, indented. Later versions may add keys, but remove none."""
    return json.dumps(as_json(audit), indent=2)


def page_of(audit: Audit, *, verbose: bool = False) -> Page:
    """A table of all findings, and below it the details of each that has a count.

    With `verbose`, also the meaning of the others.
    """
    names = ", ".join(audit.files[:3]) + (", ..." if len(audit.files) > 3 else "")
    heading = (
        f"{names}: {audit.turns:,} turns, {audit.answers:,} answers, "
        f"{audit.tokens:,} tokens"
    )
    parts = [Lines(heading), _table(audit), *_details(audit, verbose=verbose)]
    if audit.notes:
        parts.append(Lines("\n".join(audit.notes)))
    return Page(TITLE, [*parts, _verdict(audit)])


def _table(audit: Audit) -> Table:
    heads = ("LOOKED FOR", "STATE", "COUNT", "OF", "SHARE")
    table = plain_table(*heads, right=("COUNT", "SHARE"))
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


def _details(audit: Audit, *, verbose: bool) -> Iterator[RenderableType]:
    for row in audit.findings:
        if row.count or verbose:
            parts: list[RenderableType] = [
                Text(f"{row.name}: {row.state.value}", _STYLES[row.state]),
                Lines(row.meaning),
            ]
            lines = [*_seen(row), f"What to do: {row.remedy}"] if row.count else []
            if lines:
                parts.append(Lines("\n".join(lines)))
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


def _verdict(audit: Audit) -> Lines:
    found = [row.name for row in audit.findings if row.state is State.FOUND]
    word = "CLEAN" if audit.clean else "FOUND"
    names = ", ".join(found) or "nothing was found"
    more = "" if audit.clean else "\nSee `agentcore-patch docs audit`."
    text = f"{word}: {names} ({audit.seconds:.1f} s).{more}"
    return verdict_text(text, passed=audit.clean)
