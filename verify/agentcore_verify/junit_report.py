"""The report as JUnit XML, which CI systems read."""

from __future__ import annotations

from xml.etree import ElementTree

from .report import TITLE, plain_lines, without_control_characters
from .results import Outcome, Report, Result


def render_junit(report: Report) -> str:
    """The report as one test suite with a test case per check.

    A result that makes the run fail is a `failure` whose `type` is the outcome; other
    checks that did not pass are `skipped`; a server that did not start or died is an
    `error` of an additional test case `server`.
    """
    cases = [_case(report, result) for result in report.shown()]
    if report.error is not None:
        cases.insert(0, _server_case(report.error))
    counts = {
        "tests": str(len(cases)),
        "failures": str(len(report.failures)),
        "errors": str(int(report.error is not None)),
    }
    skipped = str(sum(case.find("skipped") is not None for case in cases))
    seconds = f"{report.seconds:.3f}"
    suites = ElementTree.Element(
        "testsuites", {"name": TITLE, **counts, "time": seconds}
    )
    suite = ElementTree.SubElement(
        suites,
        "testsuite",
        {"name": TITLE, **counts, "skipped": skipped, "time": seconds},
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


def _case(report: Report, result: Result) -> ElementTree.Element:
    case = ElementTree.Element(
        "testcase", name=result.name, classname=TITLE, time=f"{result.seconds:.3f}"
    )
    if report.is_failure(result):
        text = "\n".join(plain_lines(result))
        _add(case, "failure", result.outcome.value, result.message, text)
    elif result.outcome is not Outcome.PASSED:
        skipped = ElementTree.SubElement(case, "skipped")
        skipped.set("message", _xml(f"{result.message} {result.advice}".strip()))
    else:
        ElementTree.SubElement(case, "system-out").text = _xml(result.message)
    return case


def _server_case(error: str) -> ElementTree.Element:
    case = ElementTree.Element("testcase", name="server", classname=TITLE, time="0.000")
    _add(case, "error", "server", error.splitlines()[0], error)
    return case


def _add(
    case: ElementTree.Element, tag: str, kind: str, message: str, text: str
) -> None:
    element = ElementTree.SubElement(case, tag, message=_xml(message), type=kind)
    element.text = _xml(text)


def _xml(text: str) -> str:
    """Escape the characters that XML does not allow."""
    return without_control_characters(
        text, "[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
    )
