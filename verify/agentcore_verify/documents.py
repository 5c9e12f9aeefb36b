"""The report for other programs: JSON, JUnit XML, Markdown, annotations of GitHub."""

from __future__ import annotations

import json
from xml.etree import ElementTree

from agentcore_patches.errors import ServerError
from agentcore_patches.shell.exit_codes import failure_of
from agentcore_patches.shell.json_output import as_json

from .report import TITLE, level_verdict, plain_lines, without_control_characters
from .results import Outcome, Report, Result

HIDDEN = ("hint", "unpatched", "failures", "results")
"""Attributes of the report that the document has under another key, or not."""


def render_json(report: Report) -> str:
    """The document, indented. Later versions may add keys, but remove none."""
    found = as_json(report)
    found["checks"] = found["results"]
    if report.error is not None:
        found["error"] = as_json(failure_of(ServerError(report.error, report.hint)))
    shown = {key: value for key, value in found.items() if key not in HIDDEN}
    return json.dumps(shown, indent=2)


def render_junit(report: Report) -> str:
    """The report as one test suite with a test case per check.

    A result that makes the run fail is a `failure` whose `type` is the outcome; other
    checks that did not pass are `skipped`; a server that did not start or died is an
    `error` of an additional test case `server`.
    """
    cases = [_case(report, result) for result in report.shown()]
    if report.error is not None:
        message = report.error.splitlines()[0]
        error = _element("error", report.error, type="server", message=message)
        cases.insert(0, _test_case("server", 0.0, error))
    totals = {
        "name": TITLE,
        "tests": str(len(cases)),
        "failures": str(len(report.failures)),
        "errors": str(int(report.error is not None)),
        "time": f"{report.seconds:.3f}",
    }
    skipped = str(sum(case.find("skipped") is not None for case in cases))
    values = {
        "target": report.target,
        "model": report.model,
        "server_args": " ".join(report.server_args),
    }
    properties = (_element("property", name=n, value=v) for n, v in values.items())
    of_run = _element("properties", *properties)
    suite = _element("testsuite", of_run, *cases, **totals, skipped=skipped)
    suites = _element("testsuites", suite, **totals)
    ElementTree.indent(suites)
    text = ElementTree.tostring(suites, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _case(report: Report, result: Result) -> ElementTree.Element:
    if report.is_failure(result):
        text = "\n".join(plain_lines(result))
        kind = result.outcome.value
        end = _element("failure", text, type=kind, message=result.message)
    elif result.outcome is not Outcome.PASSED:
        message = f"{result.message} {result.advice}".strip()
        end = _element("skipped", message=message)
    else:
        end = _element("system-out", result.message)
    return _test_case(result.name, result.seconds, end)


def _test_case(
    name: str, seconds: float, end: ElementTree.Element
) -> ElementTree.Element:
    time = f"{seconds:.3f}"
    return _element("testcase", end, name=name, classname=TITLE, time=time)


def _element(
    tag: str, *inside: ElementTree.Element | str, **attributes: str
) -> ElementTree.Element:
    values = {name: _xml(value) for name, value in attributes.items()}
    element = ElementTree.Element(tag, values)
    for one in inside:
        if isinstance(one, str):
            element.text = _xml(one)
        else:
            element.append(one)
    return element


def _xml(text: str) -> str:
    """Escape the characters that XML does not allow."""
    return without_control_characters(
        text, "[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
    )


def render_markdown(report: Report) -> str:
    """A table of the verdicts on the levels; the rows of several servers make a matrix."""
    heads = ["server", *(one.level for one in report.levels)]
    row = [
        str(report.server),
        *(level_verdict(report, one) for one in report.levels),
    ]
    lines = (heads, ["---"] * len(heads), row)
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


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
