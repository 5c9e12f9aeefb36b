"""What a run came to, for people and for machines: a report in, text out."""

from __future__ import annotations

import io
import json
import re
import textwrap
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Protocol
from xml.etree import ElementTree

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from .results import Difference, Outcome, Report, Result

_STYLES = {
    Outcome.PASSED: "green",
    Outcome.FAILED: "bold red",
    Outcome.INCONCLUSIVE: "bold yellow",
    Outcome.NOT_EXERCISED: "yellow",
    Outcome.SKIPPED: "dim",
}
_MIN_WIDTH = 40
_SUITE = "agentcore-patch verify"

# Stands for a space where no line may be broken.
_GLUE = "\0"


class Format(Protocol):
    """One way to show a report."""

    def render(self, report: Report) -> str:
        """The whole document."""


class Table:
    """A table, and below it each check that did not pass; for people.

    Plain ASCII but for what models say, so that any terminal and any log shows it.
    """

    def __init__(self, width: int = 80, *, colour: bool = False) -> None:
        self._width = max(width, _MIN_WIDTH)
        self._colour = colour

    def render(self, report: Report) -> str:
        console = Console(
            file=io.StringIO(),
            width=self._width,
            force_terminal=self._colour,
            color_system="standard" if self._colour else None,
            no_color=not self._colour,
            highlight=False,
            emoji=False,
            markup=False,
            legacy_windows=False,
        )
        with console.capture() as captured:
            console.print(_shown(report, self._width), crop=False)
        return "\n".join(line.rstrip() for line in captured.get().splitlines())


def svg(console: Console, title: str) -> str:
    """What a console recorded, as a picture that fetches nothing when it is opened."""
    return re.sub(
        r"@font-face \{.*?\}", "", console.export_svg(title=title), flags=re.S
    )


class Svg:
    """A picture of the table."""

    def __init__(self, width: int = 100) -> None:
        self._width = width

    def render(self, report: Report) -> str:
        console = Console(
            file=io.StringIO(),
            width=self._width,
            record=True,
            force_terminal=True,
            color_system="truecolor",
            no_color=False,
            highlight=False,
            emoji=False,
            markup=False,
            legacy_windows=False,
        )
        console.print(_shown(report, self._width), crop=False)
        return svg(console, _SUITE)


class Json:
    """One object for scripts; keys are only ever added.

        {"passed": bool, "exit_code": int, "target": str, "model": str,
         "server_args": [str], "strict": bool, "seconds": float, "startup": float?,
         "log": str?, "error": str?, "notes": [str], "checks": [{"name": str,
         "outcome": "passed" | "failed" | "inconclusive" | "not exercised" | "skipped",
         "message": str, "advice": str, "seconds": float, "difference": {"left": str,
         "right": str, "rows": [{"position": int, "left": str, "right": str,
         "same": bool}]}?}]}

    `?` may be null.
    """

    def render(self, report: Report) -> str:
        told = asdict(report)
        results = told.pop("results")
        document: dict[str, Any] = {
            "passed": report.passed,
            "exit_code": report.exit_code,
            **told,
            "log": report.log and str(report.log),
            "checks": [
                {
                    "name": result.pop("check"),
                    **result,
                    "outcome": result["outcome"].value,
                }
                for result in results
            ],
        }
        return json.dumps(document, indent=2)


class JUnit:
    """JUnit's XML, as CI systems read it.

    What the run fails by is a `failure`, its `type` the outcome; what did not run is
    `skipped`; a server that did not start or died is an `error` of a case `server`.
    """

    def render(self, report: Report) -> str:
        cases = [self._case(report, result) for result in report.results]
        if report.error is not None:
            case = ElementTree.Element(
                "testcase", name="server", classname=_SUITE, time="0.000"
            )
            self._add(
                case, "error", "server", report.error.splitlines()[0], report.error
            )
            cases.insert(0, case)
        counts = {
            "tests": str(len(cases)),
            "failures": str(sum(map(report.fails, report.results))),
            "errors": str(int(report.error is not None)),
        }
        seconds = f"{report.seconds:.3f}"
        suites = ElementTree.Element(
            "testsuites", {"name": _SUITE, **counts, "time": seconds}
        )
        suite = ElementTree.SubElement(
            suites,
            "testsuite",
            {
                "name": _SUITE,
                **counts,
                "skipped": str(sum(case.find("skipped") is not None for case in cases)),
                "time": seconds,
            },
        )
        properties = ElementTree.SubElement(suite, "properties")
        for name, value in (
            ("target", report.target),
            ("model", report.model),
            ("server_args", " ".join(report.server_args)),
        ):
            ElementTree.SubElement(properties, "property", name=name, value=_xml(value))
        suite.extend(cases)
        ElementTree.indent(suites)
        text = ElementTree.tostring(suites, encoding="unicode")
        return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'

    def _case(self, report: Report, result: Result) -> ElementTree.Element:
        case = ElementTree.Element(
            "testcase",
            name=result.check,
            classname=_SUITE,
            time=f"{result.seconds:.3f}",
        )
        if report.fails(result):
            text = "\n".join(_plain(result))
            kind = result.outcome.value
            self._add(case, "failure", kind, result.message, text)
        elif result.outcome is not Outcome.PASSED:
            skipped = ElementTree.SubElement(case, "skipped")
            skipped.set("message", _xml(f"{result.message} {result.advice}".strip()))
        else:
            ElementTree.SubElement(case, "system-out").text = _xml(result.message)
        return case

    def _add(
        self, case: ElementTree.Element, tag: str, kind: str, message: str, text: str
    ) -> None:
        element = ElementTree.SubElement(case, tag, message=_xml(message), type=kind)
        element.text = _xml(text)


def _shown(report: Report, width: int) -> RenderableType:
    """All that people see of a report."""
    parts: list[RenderableType] = [_heading(report, width)]
    if report.results:
        parts.append(_grid(report, width))
    parts += _details(report, width)
    if report.notes:
        parts.append(_text("\n".join(report.notes), width))
    parts.append(_verdict(report, width))
    spaced: list[RenderableType] = []
    for part in parts:
        spaced += [part, Text("")]
    return Group(*spaced[:-1])


def _text(text: str, width: int) -> Text:
    """Wrapped lines; what stands in backticks is one word, to be copied whole."""
    visible = re.sub("[\x00-\x09\x0b-\x1f\x7f-\x9f]", _escaped, text)
    whole = re.sub("`[^`]*`", lambda command: command[0].replace(" ", _GLUE), visible)
    lines = (
        textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False)
        for line in whole.splitlines()
    )
    wrapped = "\n".join(lines).replace(_GLUE, " ")
    return Text(wrapped, no_wrap=True, overflow="ignore")


def _heading(report: Report, width: int) -> Text:
    lines = [report.target]
    if report.model:
        args = f", {' '.join(report.server_args)}" if report.server_args else ""
        lines.append(f"model {report.model}{args}")
    return _text("\n".join(lines), width)


def _grid(report: Report, width: int) -> Grid:
    grid = Grid(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    grid.add_column("CHECK", no_wrap=True)
    grid.add_column("OUTCOME", no_wrap=True)
    grid.add_column("TIME", no_wrap=True, justify="right")
    grid.add_column("SEEN", no_wrap=True, ratio=1)
    rows = [
        (result.check, _word(report, result), f"{result.seconds:.1f} s")
        for result in report.results
    ]
    columns = zip(("CHECK", "OUTCOME", "TIME"), *rows, strict=True)
    left = width - sum(2 + max(map(len, column)) for column in columns)
    for result, (name, word, seconds) in zip(report.results, rows, strict=True):
        seen = _one_line(result.message, left)
        grid.add_row(name, Text(word, _STYLES[result.outcome]), seconds, seen)
    return grid


def _one_line(message: str, width: int) -> str:
    """As much of a message as fits; all of it stands below the table if it matters."""
    line = " ".join(message.split())
    return line if len(line) <= width else f"{line[: max(width - 3, 0)].rstrip()}..."


def _word(report: Report, result: Result) -> str:
    word = result.outcome.value
    return word.upper() if report.fails(result) else word


def _details(report: Report, width: int) -> Iterator[RenderableType]:
    """A word on each result that needs one, said once for all that say the same."""
    same: dict[str, list[Result]] = {}
    for result in report.results:
        if report.fails(result) or result.advice:
            same.setdefault(result.message, []).append(result)
    for result, *others in same.values():
        also = f" and {len(others)} more" if others else ""
        title = f"{result.check}{also}: {_word(report, result)}"
        yield _detail(result, title, width)


def _detail(result: Result, title: str, width: int) -> RenderableType:
    parts: list[RenderableType] = [
        Text(title, _STYLES[result.outcome]),
        _text(result.message, width),
    ]
    if result.difference:
        parts.append(Padding(_side_by_side(result.difference), (0, 0, 0, 2)))
    if result.advice:
        parts.append(_text(result.advice, width))
    return Group(*parts)


def _side_by_side(difference: Difference) -> Grid:
    grid = Grid(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    grid.add_column("", no_wrap=True)
    grid.add_column("at", justify="right", no_wrap=True)
    grid.add_column(difference.left, overflow="fold")
    grid.add_column(difference.right, overflow="fold")
    for row in difference.rows:
        left, right = row.left or "-", row.right or "-"
        if row.same:
            grid.add_row("", str(row.position), left, right)
        else:
            grid.add_row(
                Text(">", "bold"),
                Text(str(row.position), "bold"),
                Text(left, "bold green" if row.left else "dim"),
                Text(right, "bold red" if row.right else "dim"),
            )
    return grid


def _verdict(report: Report, width: int) -> RenderableType:
    counts = Counter(result.outcome for result in report.results)
    summary = ", ".join(
        f"{counts[outcome]} {outcome.value}" for outcome in Outcome if counts[outcome]
    )
    started = (
        "" if report.startup is None else f", {report.startup:.0f} s to start SGLang"
    )
    timing = f" ({report.seconds:.0f} s{started})" if report.results else ""
    word = "PASSED" if report.passed else "FAILED"
    told = f"{word}: {summary or 'nothing was checked'}{timing}."
    if not (report.passed or report.error or any(map(report.fails, report.results))):
        told += " No check passed, so nothing is proven."
    if report.log is not None:
        told += f"\nThe server's log: {report.log}"
    text = _text(told, width)
    text.stylize("bold green" if report.passed else "bold red", 0, len(word))
    return text


def _plain(result: Result) -> Iterator[str]:
    """A result that did not pass, in lines without colour."""
    yield result.message
    if result.difference:
        yield f"at: {result.difference.left} | {result.difference.right}"
        for row in result.difference.rows:
            mark = " " if row.same else ">"
            yield f"{mark} {row.position}: {row.left or '-'} | {row.right or '-'}"
    if result.advice:
        yield result.advice


def _xml(text: str) -> str:
    """A text with what XML cannot have made visible."""
    return re.sub(
        "[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", _escaped, text
    )


def _escaped(match: re.Match[str]) -> str:
    return repr(match[0])[1:-1]
