"""The report for people: a table on the terminal, or as an SVG picture."""

from __future__ import annotations

import io
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TextIO

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from agentcore_patches.shell.terminal import (
    Color,
    has_colours,
    in_lines,
    print_text,
    terminal_width,
)

from .results import VERDICTS, Difference, LevelResult, Outcome, Report, Result

TITLE = "agentcore-patch verify"

_STYLES = {
    Outcome.PASSED: "green",
    Outcome.FAILED: "bold red",
    Outcome.INCONCLUSIVE: "bold yellow",
    Outcome.NOT_EXERCISED: "yellow",
    Outcome.SKIPPED: "dim",
}
MIN_WIDTH, SVG_WIDTH = 60, 100
LOG_WIDTH = 120
"""Columns of a report if stdout is not a terminal."""


@dataclass(frozen=True)
class Page:
    """A report for people; between its parts is an empty line."""

    title: str
    parts: Sequence[RenderableType]

    def text(self, width: int, *, colour: bool = False) -> str:
        console = _console(max(width, MIN_WIDTH), "standard" if colour else None)
        with console.capture() as captured:
            console.print(self._spaced(), crop=False)
        return "\n".join(line.rstrip() for line in captured.get().splitlines())

    def print(self, color: Color) -> None:
        """Print the report on stdout, as wide and as colourful as stdout is."""
        width = terminal_width(sys.stdout) or LOG_WIDTH
        text = self.text(width, colour=has_colours(sys.stdout, color))
        print_text(text, color=color)

    def svg(self) -> str:
        """Draw the report as an SVG that loads nothing from the network."""
        console = _console(SVG_WIDTH, "truecolor", record=True)
        console.print(self._spaced(), crop=False)
        drawing = console.export_svg(title=self.title)
        return re.sub(r"@font-face \{.*?\}", "", drawing, flags=re.S)

    def _spaced(self) -> Group:
        spaced = [line for part in self.parts for line in (part, Text(""))]
        return Group(*spaced[:-1])


def page_of(report: Report, *, verbose: bool = False) -> Page:
    """A table of all checks, and below it the details of each that did not pass.

    With `verbose`, the details of all. ASCII apart from the model's answers, so that every
    terminal and log can show it.
    """
    if report.unpatched:
        return Page(TITLE, [Lines(f"FAILED: {report.unpatched}")])
    parts: list[RenderableType] = [_heading(report)]
    if report.shown():
        parts.append(_table(report))
    parts += _details(report, verbose=verbose)
    if report.by_rules and report.levels:
        levels = plain_table("LEVEL", "VERDICT")
        for level in report.levels:
            levels.add_row(level.level, level_verdict(report, level))
        parts.append(levels)
    if report.notes:
        parts.append(Lines("\n".join(report.notes)))
    return Page(TITLE, [*parts, _verdict(report)])


def plain_lines(result: Result) -> Iterator[str]:
    """The details of a result without colour, line by line."""
    yield result.message
    if result.difference:
        yield f"at: {result.difference.left} | {result.difference.right}"
        for row in result.difference.rows:
            marker = " " if row.same else ">"
            yield f"{marker} {row.position}: {row.left or '-'} | {row.right or '-'}"
    if result.advice:
        yield result.advice


def without_control_characters(text: str, forbidden: str) -> str:
    """Escape each character that matches `forbidden`."""
    return re.sub(forbidden, lambda match: repr(match[0])[1:-1], text)


def _console(
    width: int,
    colours: Literal["standard", "truecolor"] | None,
    *,
    record: bool = False,
) -> Console:
    return Console(
        file=io.StringIO(),
        width=width,
        record=record,
        force_terminal=colours is not None,
        color_system=colours,
        no_color=colours is None,
        highlight=False,
        emoji=False,
        markup=False,
        legacy_windows=False,
    )


def stream_console(stream: TextIO, color: Color) -> Console:
    return Console(
        file=stream,
        highlight=False,
        markup=False,
        emoji=False,
        no_color=True if color == "never" else None,
    )


def plain_table(*heads: str, right: Sequence[str] = ()) -> Table:
    """A table without lines, whose cells are not broken; some columns on the right."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for head in heads:
        justify: Literal["left", "right"] = "right" if head in right else "left"
        table.add_column(head, no_wrap=True, justify=justify)
    return table


class Lines:
    """Text in lines that fit, with control characters as escapes.

    A command in backticks stays whole, unless `fold` breaks what is too long. `style` is
    that of the word before the first colon.
    """

    def __init__(self, text: str, *, fold: bool = False, style: str = "") -> None:
        self.text = without_control_characters(text, "[\x00-\x09\x0b-\x1f\x7f-\x9f]")
        self.fold = fold
        self.style = style

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> Iterator[Text]:
        width = options.max_width
        lines = (in_lines(line, width) for line in self.text.splitlines())
        shown = Text("\n".join(lines), no_wrap=not self.fold)
        shown.overflow = "fold" if self.fold else "ignore"
        if self.style:
            shown.stylize(self.style, 0, self.text.index(":"))
        yield shown


def verdict_text(text: str, *, passed: bool) -> Lines:
    return Lines(text, style="bold green" if passed else "bold red")


def _heading(report: Report) -> Lines:
    lines = [report.target]
    if report.model:
        args = f", {' '.join(report.server_args)}" if report.server_args else ""
        lines.append(f"model {report.model}{args}")
    return Lines("\n".join(lines))


def _table(report: Report) -> Table:
    heads = ("RULE", "VERDICT") if report.by_rules else ("CHECK", "OUTCOME", "TIME")
    table = plain_table(*heads, right=("TIME",))
    table.add_column("SEEN")
    for result in report.shown():
        outcome = Text(_outcome(report, result), _STYLES[result.outcome])
        cells = (result.name, outcome, f"{result.seconds:.1f} s")[: len(heads)]
        seen = Lines(" ".join(result.message.split()), fold=True)
        table.add_row(*cells, seen)
    return table


def _outcome(report: Report, result: Result) -> str:
    name = VERDICTS[result.outcome] if report.by_rules else result.outcome.value
    return name.upper() if report.is_failure(result) else name


def _details(report: Report, *, verbose: bool) -> Iterator[RenderableType]:
    """The details of each result that needs them; equal messages are shown once."""
    by_message: dict[str, list[Result]] = {}
    for result in report.shown():
        if verbose or report.is_failure(result) or result.advice:
            by_message.setdefault(result.message, []).append(result)
    for result, *others in by_message.values():
        more = f" and {len(others)} more" if others else ""
        title = f"{result.name}{more}: {_outcome(report, result)}"
        parts: list[RenderableType] = [
            Text(title, _STYLES[result.outcome]),
            Lines(result.message),
        ]
        if result.difference:
            parts.append(Padding(_side_by_side(result.difference), (0, 0, 0, 2)))
        if result.advice:
            parts.append(Lines(result.advice))
        yield Group(*parts)


def level_verdict(report: Report, level: LevelResult) -> str:
    """The verdict on a level, with the failed rule or the unsupported rules."""
    unsupported = [
        str(rule.number)
        for rule in report.rules
        if rule.level == level.level and rule.outcome is Outcome.SKIPPED
    ]
    if level.failed is not None:
        return f"{level.verdict} (rule {level.failed})"
    if level.verdict == "token-exact" and unsupported:
        return f"{level.verdict} (unsupported: {', '.join(unsupported)})"
    return level.verdict


def _side_by_side(difference: Difference) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("", no_wrap=True)
    table.add_column("at", justify="right", no_wrap=True)
    table.add_column(difference.left, overflow="fold")
    table.add_column(difference.right, overflow="fold")
    for row in difference.rows:
        marker, style = ("", "") if row.same else (">", "bold")
        cells = (marker, str(row.position), row.left or "-", row.right or "-")
        table.add_row(*cells, style=style)
    return table


def _verdict(report: Report) -> RenderableType:
    counts = Counter(result.outcome for result in report.shown())
    summary = ", ".join(
        f"{counts[outcome]} {outcome.value}" for outcome in Outcome if counts[outcome]
    )
    startup = (
        "" if report.startup is None else f", {report.startup:.0f} s to start SGLang"
    )
    timing = f" ({report.seconds:.0f} s{startup})" if report.shown() else ""
    word = "PASSED" if report.passed else "FAILED"
    verdict = f"{word}: {summary or 'no check was run'}{timing}."
    if not (report.passed or report.error or report.failures):
        if not counts[Outcome.PASSED]:
            verdict += " No check passed, so nothing was verified."
        elif report.lacks_meaning():
            verdict += f" Nothing shows that logprobs are {report.expect_logprobs}."
    if report.log is not None:
        verdict += f"\nServer log: {report.log}"
    return verdict_text(verdict, passed=report.passed)
