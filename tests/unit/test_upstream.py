"""`make upstream` compares two runs of SGLang's own tests."""

from __future__ import annotations

import pytest

from tests.upstream import compare
from tests.upstream.accepted import ACCEPTED, Accepted
from tests.upstream.compare import Difference, Outcome

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


def test_reports_differ_by_the_worst_outcome_of_each_test() -> None:
    outcomes = compare.read_outcomes(REPORT)
    assert {test: outcome.kind for test, outcome in outcomes.items()} == {
        "unit.test_a.TestA.test_passes": "passed",
        "unit.test_a.TestA.test_fails": "failed",
        "unit.test_a.TestA.test_passes_twice": "error",
        "unit.test_b": "skipped",
    }
    failed = outcomes["unit.test_a.TestA.test_fails"]
    assert failed.summary == "KeyError: 'a'"
    assert "at line 1" in failed.text
    other_words = {test: Outcome(found.kind, "-") for test, found in outcomes.items()}
    assert compare.find_differences(outcomes, other_words) == []
    for test in outcomes:
        # A test is missing from one run.
        part = {name: found for name, found in outcomes.items() if name != test}
        for stock, patched in ((outcomes, part), (part, outcomes)):
            [difference] = compare.find_differences(stock, patched)
            assert (difference.test, difference.reason) == (test, None)
            assert compare.describe(difference).startswith(f"DIFFERS: {test}")


@pytest.mark.parametrize("accepted", ACCEPTED, ids=lambda accepted: accepted.test)
def test_a_difference_is_accepted_if_test_and_failure_are_listed(
    accepted: Accepted,
) -> None:
    def differs(test: str, says: str) -> Difference:
        return Difference(test, Outcome("passed"), Outcome("failed", f"- {says} -"))

    listed = differs(f"unit.test_a.{accepted.test}", accepted.says)
    assert accepted.reason in compare.describe(listed)
    assert compare.describe(listed).startswith("accepted: ")
    assert differs(f"unit.test_a.{accepted.test}", "-").reason is None
    assert differs(f"unit.test_a.{accepted.test}_more", accepted.says).reason is None
