"""Reports: a table for people, documents for machines."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from agentcore_verify.documents import render_json, render_junit, render_markdown
from agentcore_verify.report import render_svg, render_table
from agentcore_verify.results import (
    Difference,
    Identity,
    LevelResult,
    Outcome,
    Report,
    Result,
    Row,
    RuleResult,
)
from tests.helpers.documents import mismatches

DIFFERENCE = Difference(
    "non-streaming 'cjk'",
    "streaming 'cjk'",
    (
        Row(11, "318 ' small'", "318 ' small'", True),
        Row(12, "279 '世'", "", False),
        Row(13, "112 '\\x1b'", "113 '界'", False),
    ),
)
PASSED = Result("determinism", Outcome.PASSED, "3 answers twice", seconds=1.25)
FAILED = Result(
    "same-ids",
    Outcome.FAILED,
    "streaming 'cjk': the token IDs of choice 0 part from those of non-streaming 'cjk' "
    "at position 12.",
    difference=DIFFERENCE,
    seconds=0.5,
)
INCONCLUSIVE = Result("logprobs", Outcome.INCONCLUSIVE, "They differ.", "Use --flag.")
NOT_EXERCISED = Result("tools", Outcome.NOT_EXERCISED, "No call.", "Name a parser.")
SKIPPED = Result("reasoning", Outcome.SKIPPED, "No parser.")
MISSING = "The patch is missing: `agentcore-patch apply --python x`."
UNPATCHED = [Result(name, Outcome.FAILED, MISSING) for name in ("one", "two", "three")]


def report(*results: Result, **more: object) -> Report:
    made = Report(
        target="SGLang 0.5.9 in /opt/sglang",
        model="scripted",
        server_args=("--tool-call-parser", "qwen25"),
        results=results,
        seconds=14.2,
        startup=11.3,
    )
    return replace(made, **more)  # type: ignore[arg-type]


ALL = report(
    PASSED, FAILED, INCONCLUSIVE, NOT_EXERCISED, SKIPPED, log=Path("/tmp/server.log")
)


@pytest.mark.parametrize(
    ("results", "strict", "code"),
    [
        ((PASSED,), False, 0),
        ((PASSED, NOT_EXERCISED, SKIPPED), False, 0),
        ((PASSED, NOT_EXERCISED), True, 1),
        ((PASSED, SKIPPED), True, 0),
        ((PASSED, INCONCLUSIVE), False, 1),
        ((PASSED, FAILED), False, 1),
        ((SKIPPED, NOT_EXERCISED), False, 1),
        ((), False, 1),
    ],
)
def test_a_run_passes_only_if_a_check_passed(
    results: tuple[Result, ...], strict: bool, code: int
) -> None:
    made = report(*results, strict=strict)
    assert made.exit_code == code
    assert made.passed is (code == 0)
    assert render_table(made).count("PASSED") == (code == 0)


@pytest.mark.parametrize("width", [50, 80, 120])
def test_the_table_fits_its_width(width: int) -> None:
    text = render_table(ALL, width)
    assert max(map(len, text.splitlines())) <= width
    assert text.isascii() is False  # The model's text is unchanged.
    for result in ALL.results:
        assert result.name in text


@pytest.mark.parametrize("width", [40, 80])
def test_the_table_cuts_no_cell(width: int) -> None:
    seen = " ".join(f"{number}-token-answer" for number in range(20))
    table = render_table(report(replace(PASSED, message=seen)), width)
    assert "".join(seen.split()) in "".join(table.split())


def test_the_table_shows_sequences_side_by_side() -> None:
    lines = render_table(ALL, 80).splitlines()
    [header] = [line for line in lines if line.split()[:1] == ["at"]]
    assert "non-streaming 'cjk'" in header and "streaming 'cjk'" in header
    [same] = [line for line in lines if "318" in line]
    assert same.count("318 ' small'") == 2 and ">" not in same
    [lost] = [line for line in lines if "279" in line]
    assert lost.split() == [">", "12", "279", "'世'", "-"]


def test_equal_messages_are_shown_once_and_commands_are_not_broken() -> None:
    text = render_table(report(PASSED, *UNPATCHED), 40)
    assert "one and 2 more: FAILED" in text
    below = text[text.index("and 2 more") :]
    assert below.count("is missing") == 1
    assert "`agentcore-patch apply --python x`" in below


RUDE = Result("stop", Outcome.FAILED, "HTTP 500: \x1b[2J\x07\nmore")


@pytest.mark.parametrize(
    ("results", "shown"),
    [
        ((RUDE,), "HTTP 500: \\x1b[2J\\x07\nmore"),
        ((PASSED, NOT_EXERCISED), "tools: not exercised\nNo call.\nName a parser."),
        ((SKIPPED,), "nothing was verified"),
    ],
    ids=["control characters are escaped", "advice", "no check passed"],
)
def test_the_table_says(results: tuple[Result, ...], shown: str) -> None:
    table = render_table(report(*results), 100)
    assert shown in table and "reasoning: skipped" not in table


def test_json_has_everything() -> None:
    document = json.loads(render_json(ALL))
    assert document["passed"] is False and document["exit_code"] == 1
    assert document["log"] == "/tmp/server.log"
    assert document["error"] is None
    outcomes = [check["outcome"] for check in document["checks"]]
    assert ", ".join(outcomes) == "passed, failed, inconclusive, not exercised, skipped"
    row = document["checks"][1]["difference"]["rows"][1]
    assert row == {"position": 12, "left": "279 '世'", "right": "", "same": False}
    assert document["checks"][0]["difference"] is None
    assert document["startup"] == 11.3


def test_json_has_an_error_like_other_commands() -> None:
    document = json.loads(render_json(report(PASSED, error="The server died.")))
    assert document["error"] == {
        **{"kind": "server", "exit_code": 6, "message": "The server died."},
        **{"hint": "", "details": [], "page": "troubleshooting"},
    }
    assert document["exit_code"] == 6 and document["passed"] is False


@pytest.mark.parametrize(
    "made",
    [ALL, report(), report(PASSED, error="It died.", startup=None, notes=("A note.",))],
    ids=["all outcomes", "no check", "an error"],
)
def test_json_matches_its_declared_types(made: Report) -> None:
    assert mismatches(json.loads(render_json(made)), Report) == []


# The common part of the schemas of CI systems (Jenkins, Ant, GitLab).
SCHEMA = {
    # element: (required attributes, optional attributes, child elements)
    "testsuites": ("", "name tests failures errors time", "testsuite"),
    "testsuite": ("name tests failures errors skipped time", "", "properties testcase"),
    "properties": ("", "", "property"),
    "property": ("name value", "", ""),
    "testcase": ("name classname time", "", "failure error skipped system-out"),
    "failure": ("message type", "", ""),
    "error": ("message type", "", ""),
    "skipped": ("", "message", ""),
    "system-out": ("", "", ""),
}


def assert_valid(element: ElementTree.Element) -> None:
    must, may, children = (set(names.split()) for names in SCHEMA[element.tag])
    assert must <= set(element.attrib) <= must | may
    for child in element:
        assert child.tag in children
        assert_valid(child)


def suite(made: Report) -> ElementTree.Element:
    """Return the one suite of a report; check its schema and counts."""
    root = ElementTree.fromstring(render_junit(made).encode())
    assert_valid(root)
    [found] = root
    cases = found.findall("testcase")
    assert found.get("tests") == str(len(cases))
    for count, tag in (("failures", "failure"), ("errors", "error"), ("skipped",) * 2):
        assert found.get(count) == str(
            sum(case.find(tag) is not None for case in cases)
        )
    for number in [found.get("time"), *(case.get("time") for case in cases)]:
        assert number is not None and float(number) >= 0
    return found


def test_junit_distinguishes_failures_from_skipped_checks() -> None:
    tags = {
        case.get("name"): [child.tag for child in case]
        for case in suite(ALL).findall("testcase")
    }
    assert tags == {
        "determinism": ["system-out"],
        "same-ids": ["failure"],
        "logprobs": ["failure"],
        "tools": ["skipped"],
        "reasoning": ["skipped"],
    }
    strict = suite(replace(ALL, strict=True))
    assert strict.get("failures") == "3"


def test_junit_shows_where_sequences_differ() -> None:
    [failure, _] = suite(ALL).iter("failure")
    assert failure.text is not None
    assert "> 12: 279 '世' | -" in failure.text


def test_junit_reports_a_crashed_server_as_an_error() -> None:
    found = suite(report(PASSED, error="The server died.\nIts last line"))
    [error] = found.iter("error")
    assert error.get("message") == "The server died."
    assert error.text == "The server died.\nIts last line"


def test_junit_escapes_what_xml_does_not_allow() -> None:
    message = "a \x00 b \x1b[31m c \ud800 <&>"
    [failure] = suite(report(Result("stop", Outcome.FAILED, message))).iter("failure")
    assert failure.get("message") == "a \\x00 b \\x1b[31m c \\ud800 <&>"


def test_markdown_has_a_row_of_the_levels() -> None:
    levels = (
        LevelResult("ids", "token-exact", None),
        LevelResult("turns", "not token-exact", 17),
    )
    rule = RuleResult("5 ids", Outcome.SKIPPED, "No streams.", number=5, level="ids")
    made = replace(ALL, server=Identity("vLLM", "1.0"), levels=levels, rules=(rule,))
    assert render_markdown(made).splitlines() == [
        "| server | ids | turns |",
        "| --- | --- | --- |",
        "| vLLM 1.0 | token-exact (unsupported: 5) | not token-exact (rule 17) |",
    ]


def test_svg_shows_the_table() -> None:
    picture = render_svg(ALL)
    root = ElementTree.fromstring(picture)
    assert root.tag.endswith("svg")
    shown = "".join(root.itertext()).replace("\xa0", " ")
    assert "FAILED" in shown and "held-back" not in shown
    assert "279 '世'" in shown
    assert "url(http" not in picture and 'url("http' not in picture
