"""Reports: a table for people, documents for machines."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from agentcore_verify.documents import render_json, render_junit, render_markdown
from agentcore_verify.report import page_of
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
SEEN = " ".join(f"{number}-token-answer" for number in range(20))
RULES = (
    RuleResult("1 ids", Outcome.PASSED, SEEN, number=1, level="ids"),
    RuleResult("5 ids", Outcome.SKIPPED, "No streams.", number=5, level="ids"),
    RuleResult("17 turns", Outcome.FAILED, f"{SEEN}.", number=17, level="turns"),
)
JUDGED = replace(
    report(rules=RULES, by_rules=True, server=Identity("vLLM", "1.0")),
    levels=(
        LevelResult("ids", "token-exact", None),
        LevelResult("turns", "not token-exact", 17),
    ),
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
    assert page_of(made).text(80).count("PASSED") == (code == 0)


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("made", [ALL, JUDGED], ids=["checks", "rules"])
def test_the_table_fits_its_width_and_cuts_no_cell(made: Report, width: int) -> None:
    text = page_of(made).text(width)
    assert max(map(len, text.splitlines())) <= width
    for result in made.shown():
        assert result.name in text
        assert "".join(result.message.split()) in "".join(text.split())


def test_the_table_shows_sequences_side_by_side() -> None:
    lines = page_of(ALL).text(80).splitlines()
    [header] = [line for line in lines if line.split()[:1] == ["at"]]
    assert "non-streaming 'cjk'" in header and "streaming 'cjk'" in header
    [same] = [line for line in lines if "318" in line]
    assert same.count("318 ' small'") == 2 and ">" not in same
    [lost] = [line for line in lines if "279" in line]
    assert lost.split() == [">", "12", "279", "'世'", "-"]


def test_equal_messages_are_shown_once_and_commands_are_not_broken() -> None:
    text = page_of(report(PASSED, *UNPATCHED)).text(40)
    assert "one and 2 more: FAILED" in text
    below = text[text.index("and 2 more") :]
    assert below.count("is missing") == 1
    assert "`agentcore-patch apply --python x`" in below


RUDE = Result("stop", Outcome.FAILED, "HTTP 500: \x1b[2J\x07 \ud800 <&>\nmore")


@pytest.mark.parametrize(
    ("results", "shown"),
    [
        ((RUDE,), "HTTP 500: \\x1b[2J\\x07"),
        ((PASSED, NOT_EXERCISED), "tools: not exercised\nNo call.\nName a parser."),
        ((SKIPPED,), "nothing was verified"),
    ],
    ids=["control characters are escaped", "advice", "no check passed"],
)
def test_the_table_says(results: tuple[Result, ...], shown: str) -> None:
    table = page_of(report(*results)).text(100)
    assert shown in table and "reasoning: skipped" not in table


def test_json_has_everything_and_an_error_like_other_commands() -> None:
    document = json.loads(render_json(ALL))
    assert mismatches(document, Report) == []
    assert document["passed"] is False and document["exit_code"] == 1
    assert document["error"] is None
    outcomes = [check["outcome"] for check in document["checks"]]
    assert ", ".join(outcomes) == "passed, failed, inconclusive, not exercised, skipped"
    row = document["checks"][1]["difference"]["rows"][1]
    assert row == {"position": 12, "left": "279 '世'", "right": "", "same": False}
    document = json.loads(render_json(replace(JUDGED, error="The server died.")))
    assert mismatches(document, Report) == []
    assert document["error"]["message"] == "The server died."
    assert document["exit_code"] == document["error"]["exit_code"] == 6


JUNIT = """\
<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="agentcore-patch verify" tests="5" failures="2" errors="1" time="14.200">
  <testsuite name="agentcore-patch verify" tests="5" failures="2" errors="1" time="14.200" \
skipped="1">
    <properties>
      <property name="target" value="SGLang 0.5.9 in /opt/sglang" />
      <property name="model" value="scripted" />
      <property name="server_args" value="--tool-call-parser qwen25" />
    </properties>
    <testcase name="server" classname="agentcore-patch verify" time="0.000">
      <error type="server" message="It died.">It died.
Its last line</error>
    </testcase>
    <testcase name="determinism" classname="agentcore-patch verify" time="1.250">
      <system-out>3 answers twice</system-out>
    </testcase>
    <testcase name="logprobs" classname="agentcore-patch verify" time="0.000">
      <failure type="inconclusive" message="They differ.">They differ.
at: non-streaming 'cjk' | streaming 'cjk'
  11: 318 ' small' | 318 ' small'
&gt; 12: 279 '世' | -
&gt; 13: 112 '\\x1b' | 113 '界'
Use --flag.</failure>
    </testcase>
    <testcase name="tools" classname="agentcore-patch verify" time="0.000">
      <skipped message="No call. Name a parser." />
    </testcase>
    <testcase name="stop" classname="agentcore-patch verify" time="0.000">
      <failure type="failed" message="HTTP 500: \\x1b[2J\\x07 \\ud800 &lt;&amp;&gt;&#10;more">\
HTTP 500: \\x1b[2J\\x07 \\ud800 &lt;&amp;&gt;
more</failure>
    </testcase>
  </testsuite>
</testsuites>
"""
"""In the common part of the schemas of CI systems (Jenkins, Ant, GitLab)."""


def test_junit_has_a_case_for_each_check() -> None:
    differs = replace(INCONCLUSIVE, difference=DIFFERENCE)
    results = (PASSED, differs, NOT_EXERCISED, RUDE)
    made = report(*results, error="It died.\nIts last line")
    assert render_junit(made) == JUNIT
    assert '<failure type="not exercised"' in render_junit(replace(made, strict=True))


def test_markdown_has_a_row_of_the_levels() -> None:
    assert render_markdown(JUDGED).splitlines() == [
        "| server | ids | turns |",
        "| --- | --- | --- |",
        "| vLLM 1.0 | token-exact (unsupported: 5) | not token-exact (rule 17) |",
    ]


def test_svg_shows_the_table() -> None:
    picture = page_of(ALL).svg()
    root = ElementTree.fromstring(picture)
    assert root.tag.endswith("svg")
    shown = "".join(root.itertext()).replace("\xa0", " ")
    assert "FAILED" in shown and "held-back" not in shown
    assert "279 '世'" in shown
    assert "url(http" not in picture and 'url("http' not in picture
