from __future__ import annotations

import pytest

from agentcore_patches.edits import Replace
from agentcore_patches.edits.matching import MalformedEdit
from tests.unit.edits.tables import (
    FILE,
    assert_conflict,
    assert_no_op,
    assert_rewrites,
)

REPLACE = Replace(FILE, "f", "ids = [ids[-1]]", "ids = []", note="none")
REPLACE_EACH = Replace(FILE, "f", "yield dump(X)", "yield send(X)", each=2)

REWRITES = [
    pytest.param(
        REPLACE,
        """
        def f(ids):
            if ids:
                print(ids)

                # The last one.
                ids = [ids[-1]]  # alone
            return ids
        """,
        """
        def f(ids):
            if ids:
                print(ids)

                # The last one.
                # agentcore-patch: none
                ids = []  # alone
            return ids
        """,
        id="replace",
    ),
    pytest.param(
        REPLACE_EACH,
        """
        def f(a):
            yield dump(a)
            yield a
            if a:
                yield dump(a.b)  # part of it
        """,
        """
        def f(a):
            yield send(a)
            yield a
            if a:
                yield send(a.b)  # part of it
        """,
        id="replace each",
    ),
]

NO_OPS = [
    pytest.param(
        REPLACE,
        """
        def f(ids):
            ids=[
            ]
        """,
        id="replaced",
    ),
    pytest.param(
        REPLACE_EACH,
        """
        def f(a):
            yield send(a)
            yield send(0)
        """,
        id="each replaced",
    ),
]

CONFLICTS = [
    pytest.param(
        REPLACE,
        """
        def f(ids):
            ids = ids[-1:]
        """,
        "`ids = [ids[-1]]` was not found",
        id="nothing to replace",
    ),
    pytest.param(
        REPLACE,
        """
        def f(ids):
            ids = [ids[-1]]
            ids = [ids[-1]]
        """,
        "`ids = [ids[-1]]` was found 2 times, expected 1",
        id="two to replace",
    ),
    pytest.param(
        REPLACE,
        """
        def f(ids):
            ids = []
            ids = []
        """,
        "`ids = [ids[-1]]` was not found",
        id="replaced twice",
    ),
    pytest.param(
        REPLACE_EACH,
        """
        def f(a):
            yield a
        """,
        "`yield dump(X)` was not found, expected 2",
        id="none of each to replace",
    ),
    pytest.param(
        REPLACE_EACH,
        """
        def f(a):
            yield dump(a)
            yield dump(a)
            yield dump(a)
        """,
        "`yield dump(X)` was found 3 times, expected 2",
        id="one more than expected",
    ),
    pytest.param(
        REPLACE_EACH,
        """
        def f(a):
            yield send(a)
            yield dump(a)
        """,
        "`yield dump(X)` was found once, expected 2",
        id="one of two replaced already",
    ),
    pytest.param(
        REPLACE,
        """
        def f(ids):
            ids = []
            ids = [ids[-1]]
        """,
        "there is `ids = []` besides it: a second apply could not tell the two apart",
        id="what would replace it is there besides it",
    ),
]


@pytest.mark.parametrize(("edit", "before", "after"), REWRITES)
def test_it_rewrites_its_place_once(edit: Replace, before: str, after: str) -> None:
    assert_rewrites(edit, before, after)


@pytest.mark.parametrize(("edit", "source"), NO_OPS)
def test_what_is_there_already_stays(edit: Replace, source: str) -> None:
    assert_no_op(edit, source)


@pytest.mark.parametrize(("edit", "source", "reason"), CONFLICTS)
def test_a_place_that_is_not_as_expected_is_refused(
    edit: Replace, source: str, reason: str
) -> None:
    assert_conflict(edit, source, reason)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (REPLACE, "`ids = []` in place of `ids = [ids[-1]]`"),
        (Replace(FILE, "f", "a(\n)", "b(\n)"), "`b(` in place of `a(`"),
    ],
)
def test_it_says_what_it_puts_where(edit: Replace, words: str) -> None:
    assert edit.describe() == words


MALFORMED = [
    (Replace(FILE, "f", "if a: ...", "b()"), "`if a: ...` is not a simple statement"),
    (Replace(FILE, "f", "a()", "if b: c()"), "`if b: c()` is not a simple statement"),
    (Replace(FILE, "f", "a()", "b("), "`b(` cannot be parsed as one statement: "),
    (
        Replace(FILE, "f", "a()", "b()\nc()"),
        "`b()` cannot be parsed as one statement: ",
    ),
    (
        Replace(FILE, "f", "yield X", "yield g(X)"),
        "`yield g(X)` has the shape of `yield X`, so that a second apply would replace it again",
    ),
    (Replace(FILE, "f", "a()", "b()", each=-1), "`each` is -1, but must be 1 or more"),
]


@pytest.mark.parametrize(("edit", "reason"), MALFORMED)
def test_a_mistake_of_its_author_is_told(edit: Replace, reason: str) -> None:
    assert edit.describe()
    with pytest.raises(MalformedEdit) as refused:
        edit.check()
    assert str(refused.value).startswith(reason)
