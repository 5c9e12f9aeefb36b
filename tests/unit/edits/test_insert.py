from __future__ import annotations

import pytest

from agentcore_patches.edits import Insert
from agentcore_patches.edits.matching import MalformedEdit
from tests.unit.edits.tables import (
    FILE,
    assert_conflict,
    assert_no_op,
    assert_rewrites,
)

BEFORE = Insert(FILE, "f", "log(data)", before="return data")
AFTER = Insert(FILE, "f", "log(state)", after="state = make(...)")
START = Insert(FILE, "f", "trace = None")

REWRITES = [
    pytest.param(
        BEFORE,
        """
        def f(data):
            return data
        """,
        """
        def f(data):
            log(data)
            return data
        """,
        id="before",
    ),
    pytest.param(
        Insert(FILE, "f", "log(data)\nflush()", before="return data", note="why"),
        """
        def f(data):
            for x in data:
                with x:
                    y = 1

                    # The end.
                    return data  # all
            else:
                pass
            return None
        """,
        """
        def f(data):
            for x in data:
                with x:
                    y = 1
                    # agentcore-patch: why
                    log(data)
                    flush()

                    # The end.
                    return data  # all
            else:
                pass
            return None
        """,
        id="before, in nested blocks",
    ),
    pytest.param(
        AFTER,
        """
        class A:
            def f(self):
                pass


        def f(x):
            try:
                pass
            except KeyError:
                state = make(
                    x,  # it
                )
                # And then:
                return state
        """,
        """
        class A:
            def f(self):
                pass


        def f(x):
            try:
                pass
            except KeyError:
                state = make(
                    x,  # it
                )
                log(state)
                # And then:
                return state
        """,
        id="after, in an exception handler",
    ),
    pytest.param(
        Insert(FILE, "A.B.f", "x = 1", after="while True: ..."),
        """
        class A:
            class B:
                @staticmethod
                @decorated(
                    by=1,
                )
                async def f():
                    while True:
                        break
                    else:
                        pass

                    return x
        """,
        """
        class A:
            class B:
                @staticmethod
                @decorated(
                    by=1,
                )
                async def f():
                    while True:
                        break
                    else:
                        pass
                    x = 1

                    return x
        """,
        id="after a compound statement, in a decorated method of a class in a class",
    ),
    pytest.param(
        START,
        """
        def f(x):
            '''What it does.'''
            # How.
            return x
        """,
        """
        def f(x):
            '''What it does.'''
            trace = None
            # How.
            return x
        """,
        id="at the start, after the docstring",
    ),
    pytest.param(
        START,
        """
        def f(x):
            return x
        """,
        """
        def f(x):
            trace = None
            return x
        """,
        id="at the start, without a docstring",
    ),
]

NO_OPS = [
    pytest.param(
        Insert(FILE, "f", "log(data)\nflush()", before="return data", note="why"),
        """
        def f(data):
            log( data )  # first
            # then
            flush()
            x = 1
            return data
        """,
        id="statements, with others between them and the anchor",
    ),
    pytest.param(
        START,
        """
        def f(data):
            print()
            trace = None
        """,
        id="statement, no longer at the start",
    ),
]

CONFLICTS = [
    pytest.param(
        BEFORE,
        """
        def f(data):
            return data.x
        """,
        "`return data` was not found",
        id="no anchor",
    ),
    pytest.param(
        BEFORE,
        """
        def f(data):
            if data:
                return data
            return data
        """,
        "`return data` was found 2 times, expected 1",
        id="two anchors",
    ),
    pytest.param(
        BEFORE,
        """
        def f(data):
            if data: return data
        """,
        "`return data` was not found",
        id="anchor in a suite on the line of its `if`",
    ),
    pytest.param(
        BEFORE,
        """
        def f(data):
            data += 1; return data
        """,
        "`return data` was not found",
        id="anchor that shares its line",
    ),
    pytest.param(
        BEFORE,
        """
        def f(data): return data
        """,
        "`return data` was not found",
        id="anchor on the line of its function",
    ),
    pytest.param(
        START,
        """
        def f(data): return data
        """,
        "its body is on the line of its header",
        id="start of a function on one line",
    ),
]


@pytest.mark.parametrize(("edit", "before", "after"), REWRITES)
def test_it_rewrites_its_place_once(edit: Insert, before: str, after: str) -> None:
    assert_rewrites(edit, before, after)


@pytest.mark.parametrize(("edit", "source"), NO_OPS)
def test_what_is_there_already_stays(edit: Insert, source: str) -> None:
    assert_no_op(edit, source)


@pytest.mark.parametrize(("edit", "source", "reason"), CONFLICTS)
def test_a_place_that_is_not_as_expected_is_refused(
    edit: Insert, source: str, reason: str
) -> None:
    assert_conflict(edit, source, reason)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (BEFORE, "`log(data)` before `return data`"),
        (AFTER, "`log(state)` after `state = make(...)`"),
        (START, "`trace = None` at the start"),
    ],
)
def test_it_says_what_it_puts_where(edit: Insert, words: str) -> None:
    assert edit.describe() == words


MALFORMED = [
    (
        Insert(FILE, "f", "a()", before="b()", after="c()"),
        "it has both `before` and `after`",
    ),
    (Insert(FILE, "f", "a(", before="b()"), "`a(` cannot be parsed as Python: "),
    (Insert(FILE, "f", "# why", before="b()"), "its new code has no statement"),
    (Insert(FILE, "f", "", before="b()"), "its new code has no statement"),
    (Insert(FILE, "f", "a()", before="b("), "`b(` cannot be parsed as one statement: "),
    (
        Insert(FILE, "f", "a()", after="b()\nc()"),
        "`b()` cannot be parsed as one statement: ",
    ),
]


@pytest.mark.parametrize(("edit", "reason"), MALFORMED)
def test_a_mistake_of_its_author_is_told(edit: Insert, reason: str) -> None:
    assert edit.describe()
    with pytest.raises(MalformedEdit) as refused:
        edit.check()
    assert str(refused.value).startswith(reason)
