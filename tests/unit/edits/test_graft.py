from __future__ import annotations

from typing import Any

import pytest

from agentcore_patches.edits import Graft
from agentcore_patches.edits.matching import MalformedEdit
from tests.unit.edits.tables import (
    FILE,
    assert_conflict,
    assert_no_op,
    assert_rewrites,
)


def grafted(values: list[int]) -> list[int]:
    """Twice each of them."""
    return [2 * value for value in values]


def method(self: Any) -> Any:
    return self


GRAFT = Graft(FILE, "Answer", grafted, note="doubles")
METHOD = Graft(FILE, "Answer", method, inside=True, note="itself")

REWRITES = [
    pytest.param(
        GRAFT,
        """
        import os


        # An answer
        # to a question
        # of somebody.
        @decorated
        class Answer:
            pass
        """,
        '''
        import os


        # agentcore-patch: doubles
        def grafted(values: list[int]) -> list[int]:
            """Twice each of them."""
            return [2 * value for value in values]


        # An answer
        # to a question
        # of somebody.
        @decorated
        class Answer:
            pass
        ''',
        id="graft above a definition and its comment",
    ),
    pytest.param(
        METHOD,
        """
        class Answer:
            def f(self):
                pass


        x = Answer()
        """,
        """
        class Answer:
            def f(self):
                pass

            # agentcore-patch: itself
            def method(self: Any) -> Any:
                return self


        x = Answer()
        """,
        id="graft inside a class",
    ),
]

NO_OPS = [
    pytest.param(
        GRAFT,
        """
        class Answer:
            pass

        def grafted( values: list[int] )->list[int]:
            '''Twice each of them.'''
            return [
                2 * value
                for value in values
            ]
        """,
        id="graft, below",
    ),
    pytest.param(
        METHOD,
        """
        class Answer:
            def method(self: Any) -> Any: return self
            x = 1
        """,
        id="graft, not at the end",
    ),
]

CONFLICTS = [
    pytest.param(
        GRAFT,
        """
        def grafted(values):
            return values

        class Answer: pass
        """,
        "the file has another definition of that name",
        id="another definition of that name",
    ),
    pytest.param(
        METHOD,
        """
        class Answer:
            def method(self: Any) -> Any: return self
            def method(self: Any) -> Any: return self
        """,
        "the file has another definition of that name",
        id="the method twice",
    ),
    pytest.param(
        METHOD,
        """
        class Answer:
            def method(self):
                return None
        """,
        "the file has another definition of that name",
        id="another method of that name",
    ),
    pytest.param(
        GRAFT,
        """
        def grafted(values): pass
        """,
        "`Answer` is not defined",
        id="nothing to stand in front of",
    ),
]


@pytest.mark.parametrize(("edit", "before", "after"), REWRITES)
def test_it_rewrites_its_place_once(edit: Graft, before: str, after: str) -> None:
    assert_rewrites(edit, before, after)


@pytest.mark.parametrize(("edit", "source"), NO_OPS)
def test_what_is_there_already_stays(edit: Graft, source: str) -> None:
    assert_no_op(edit, source)


@pytest.mark.parametrize(("edit", "source", "reason"), CONFLICTS)
def test_a_place_that_is_not_as_expected_is_refused(
    edit: Graft, source: str, reason: str
) -> None:
    assert_conflict(edit, source, reason)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (GRAFT, "definition of `grafted`"),
        (METHOD, "definition of `method`"),
    ],
)
def test_it_says_what_it_puts_where(edit: Graft, words: str) -> None:
    assert edit.describe() == words


MALFORMED = [
    (Graft(FILE, "Answer", len), "the source of `len` cannot be copied: "),
    (
        Graft(FILE, "Answer", lambda: 0, inside=True),
        "`<lambda>` is not a class or function",
    ),
]


@pytest.mark.parametrize(("edit", "reason"), MALFORMED)
def test_a_mistake_of_its_author_is_told(edit: Graft, reason: str) -> None:
    assert edit.describe()
    with pytest.raises(MalformedEdit) as refused:
        edit.check()
    assert str(refused.value).startswith(reason)
