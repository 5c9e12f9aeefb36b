from __future__ import annotations

import pytest

from agentcore_patches.edits import Narrow
from agentcore_patches.edits.matching import MalformedEdit
from tests.unit.edits.tables import (
    FILE,
    assert_conflict,
    assert_no_op,
    assert_rewrites,
)

NARROW = Narrow(FILE, "f", "if wanted: ...", "trace is None")

REWRITES = [
    pytest.param(
        NARROW,
        """
        def f(wanted):
            if wanted:  # then
                # It is.
                pass
            else:
                pass
        """,
        """
        def f(wanted):
            if wanted and trace is None:  # then
                # It is.
                pass
            else:
                pass
        """,
        id="narrow",
    ),
    pytest.param(
        NARROW,
        """
        def f(wanted):
            if(
                wanted  # at all
            ): pass
        """,
        """
        def f(wanted):
            if(
                wanted  # at all
            ) and trace is None: pass
        """,
        id="narrow what stands in parentheses",
    ),
    pytest.param(
        Narrow(FILE, "f", "if a or b: ...", "c or d"),
        """
        def f():
            if a or b:
                pass
        """,
        """
        def f():
            if (a or b) and (c or d):
                pass
        """,
        id="narrow what binds less than `and`",
    ),
    pytest.param(
        Narrow(FILE, "f", "if a and b: ...", "c"),
        """
        def f():
            if a and b:
                pass
        """,
        """
        def f():
            if a and b and c:
                pass
        """,
        id="narrow one more `and`",
    ),
]

NO_OPS = [
    pytest.param(
        NARROW,
        """
        def f(wanted):
            if (wanted) and (trace is None):
                pass
        """,
        id="narrowed",
    ),
]

CONFLICTS = [
    pytest.param(
        NARROW,
        """
        def f(wanted):
            if not wanted:
                pass
            elif wanted:
                pass
        """,
        "`if wanted: ...` was not found",
        id="nothing to narrow",
    ),
    pytest.param(
        NARROW,
        """
        def f(wanted):
            if wanted:
                pass
            if wanted: pass
        """,
        "`if wanted: ...` was found 2 times, expected 1",
        id="two to narrow",
    ),
]


@pytest.mark.parametrize(("edit", "before", "after"), REWRITES)
def test_it_rewrites_its_place_once(edit: Narrow, before: str, after: str) -> None:
    assert_rewrites(edit, before, after)


@pytest.mark.parametrize(("edit", "source"), NO_OPS)
def test_what_is_there_already_stays(edit: Narrow, source: str) -> None:
    assert_no_op(edit, source)


@pytest.mark.parametrize(("edit", "source", "reason"), CONFLICTS)
def test_a_place_that_is_not_as_expected_is_refused(
    edit: Narrow, source: str, reason: str
) -> None:
    assert_conflict(edit, source, reason)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (NARROW, "`and trace is None` in `if wanted: ...`"),
    ],
)
def test_it_says_what_it_puts_where(edit: Narrow, words: str) -> None:
    assert edit.describe() == words


MALFORMED = [
    (Narrow(FILE, "f", "while a: ...", "b"), "`while a: ...` is not an `if`"),
    (Narrow(FILE, "f", "if a", "b"), "`if a` cannot be parsed as one statement: "),
    (
        Narrow(FILE, "f", "if a: ...", "b ="),
        "`b =` cannot be parsed as an expression: ",
    ),
]


@pytest.mark.parametrize(("edit", "reason"), MALFORMED)
def test_a_mistake_of_its_author_is_told(edit: Narrow, reason: str) -> None:
    assert edit.describe()
    with pytest.raises(MalformedEdit) as refused:
        edit.check()
    assert str(refused.value).startswith(reason)
