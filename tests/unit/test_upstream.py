"""`make upstream` compares two runs of SGLang's own tests."""

from __future__ import annotations

import pytest

from tests.upstream import compare
from tests.upstream.accepted import ACCEPTED, Accepted

REPORT = """<?xml version="1.0" encoding="utf-8"?>
<testsuites name="pytest tests"><testsuite name="pytest">
<testcase classname="unit.test_a.TestA" name="test_passes" time="0.1" />
<testcase classname="unit.test_a.TestA" name="test_fails">
<properties><property name="x" value="y" /></properties>
<failure message="KeyError: 'a'">at line 1</failure>
</testcase>
<testcase classname="unit.test_a.TestA" name="test_passes_twice" />
<testcase classname="unit.test_a.TestA" name="test_passes_twice">
<error message="failed on teardown">at line 2</error>
</testcase>
<testcase classname="" name="unit.test_b"><skipped message="no GPU" /></testcase>
</testsuite></testsuites>
"""


def test_a_report_has_the_worst_outcome_of_each_test() -> None:
    outcomes = compare.read_outcomes(REPORT)
    assert outcomes == {
        "unit.test_a.TestA.test_passes": "",
        "unit.test_a.TestA.test_fails": "KeyError: 'a'\nat line 1",
        "unit.test_a.TestA.test_passes_twice": "failed on teardown\nat line 2",
        "unit.test_b": compare.SKIPPED,
    }


def test_a_test_missing_from_one_run_is_a_difference() -> None:
    whole = compare.read_outcomes(REPORT)
    other_words = {test: text and f"{text}." for test, text in whole.items()}
    del other_words["unit.test_b"]
    assert compare.find_differing(whole, other_words) == ["unit.test_b"]
    for test in whole:
        part = {name: found for name, found in whole.items() if name != test}
        assert compare.find_differing(whole, part) == [test]
        assert compare.find_differing(part, whole) == [test]


@pytest.mark.parametrize("accepted", ACCEPTED, ids=lambda accepted: accepted.test)
def test_a_difference_is_accepted_if_test_and_failure_are_listed(
    accepted: Accepted,
) -> None:
    test, says = f"unit.test_a.{accepted.test}", f"- {accepted.says} -"
    assert compare.find_reason(test, says) == accepted.reason
    assert compare.find_reason(test, "-") is None
    assert compare.find_reason(test, None) is None
    assert compare.find_reason(f"{test}_more", says) is None
