from __future__ import annotations

import pytest

from agentcore_patches.edits import AddKeyword
from agentcore_patches.edits.matching import MalformedEdit
from tests.unit.edits.tables import (
    FILE,
    assert_conflict,
    assert_no_op,
    assert_rewrites,
)

KEYWORD = AddKeyword(FILE, "f", "Answer", "ids=x.ids")

REWRITES = [
    pytest.param(
        KEYWORD,
        """
        def f(x):
            return Answer()
        """,
        """
        def f(x):
            return Answer(ids=x.ids)
        """,
        id="the only argument",
    ),
    pytest.param(
        KEYWORD,
        """
        def f(x):
            return Answer(x, text="ids")
        """,
        """
        def f(x):
            return Answer(x, text="ids", ids=x.ids)
        """,
        id="argument on the line",
    ),
    pytest.param(
        KEYWORD,
        """
        def f(x):
            return Answer(
                text="",
                # Why it ended.
                reason=None,  # not yet
                # More to come.
            )
        """,
        """
        def f(x):
            return Answer(
                text="",
                # Why it ended.
                reason=None,  # not yet
                # More to come.
                ids=x.ids,
            )
        """,
        id="argument on a line of its own, after the comments",
    ),
    pytest.param(
        KEYWORD,
        """
        def f(x):
            return Answer(text="",
                          reason=None)
        """,
        """
        def f(x):
            return Answer(text="",
                          reason=None,
                          ids=x.ids)
        """,
        id="argument below the others",
    ),
    pytest.param(
        KEYWORD,
        """
        def f(x):
            return Answer(
                x  # all of it
            )
        """,
        """
        def f(x):
            return Answer(
                x, ids=x.ids  # all of it
            )
        """,
        id="argument after a single one without a comma",
    ),
    pytest.param(
        KEYWORD,
        """
        def f(x):
            return Answer(text="", **x.rest)
        """,
        """
        def f(x):
            return Answer(text="", ids=x.ids, **x.rest)
        """,
        id="argument before what is unpacked",
    ),
    pytest.param(
        KEYWORD,
        """
        def f(x):
            return Answer(
                text="",
                reason=None,  # not yet
                **{
                    name: getattr(x, name)
                    for name in NAMES
                },
            )
        """,
        """
        def f(x):
            return Answer(
                text="",
                reason=None,  # not yet
                ids=x.ids,
                **{
                    name: getattr(x, name)
                    for name in NAMES
                },
            )
        """,
        id="argument on a line of its own before what is unpacked",
    ),
    pytest.param(
        KEYWORD,
        """
        def f(x):
            return Answer(**x.rest)
        """,
        """
        def f(x):
            return Answer(**x.rest, ids=x.ids)
        """,
        id="argument where all is unpacked",
    ),
    pytest.param(
        AddKeyword(FILE, "f", "Answer", "ids=x.ids", each=5),
        """
        def f(x):
            if x:
                return [Answer(1), Answer(Answer(2))]
            return other.Answer(3), Answer, lambda: Answer(*x, **g(Answer(4)))
        """,
        """
        def f(x):
            if x:
                return [Answer(1, ids=x.ids), Answer(Answer(2, ids=x.ids), ids=x.ids)]
            return other.Answer(3), Answer, lambda: Answer(*x, ids=x.ids, **g(Answer(4, ids=x.ids)))
        """,
        id="every call, of that name only",
    ),
    pytest.param(
        AddKeyword(FILE, "f", "Answer", "ids=x.ids", each=2),
        """
        def f(x):
            return Answer(1, ids=(x.ids)), Answer(2)
        """,
        """
        def f(x):
            return Answer(1, ids=(x.ids)), Answer(2, ids=x.ids)
        """,
        id="calls that lack it",
    ),
    pytest.param(
        AddKeyword(FILE, "f", "self.run", "ids=(\n    x.ids if x.wanted else None\n)"),
        """
        def f(self, x):
            if x:
                self.run(
                    1,
                    2,
                )
        """,
        """
        def f(self, x):
            if x:
                self.run(
                    1,
                    2,
                    ids=(
                        x.ids if x.wanted else None
                    ),
                )
        """,
        id="argument of several lines",
    ),
    pytest.param(
        KEYWORD,
        """
        def f(x):
            return Answer(y for y in x)
        """,
        """
        def f(x):
            return Answer((y for y in x), ids=x.ids)
        """,
        id="argument after a generator that was the only one",
    ),
]

NO_OPS = [
    pytest.param(
        KEYWORD,
        """
        def f(x):
            return Answer(
                ids = x.ids,  # the IDs
                text="",
            )
        """,
        id="argument, at another place",
    ),
]

CONFLICTS = [
    pytest.param(
        KEYWORD,
        """
        def f(x):
            return answer(x)

        def g(x):
            return Answer(x)
        """,
        "a call of `Answer` was not found",
        id="no call",
    ),
    pytest.param(
        AddKeyword(FILE, "f", "Answer", "ids=x.ids", each=2),
        """
        def f(x):
            return Answer(x), Answer(ids=x.output_ids)
        """,
        "a call has another argument of that name: `ids=x.output_ids`",
        id="another argument of that name",
    ),
    pytest.param(
        KEYWORD,
        """
        def f(x):
            return Answer(1), Answer(2)
        """,
        "a call of `Answer` was found 2 times, expected 1",
        id="two calls where one is expected",
    ),
    pytest.param(
        AddKeyword(FILE, "f", "Answer", "ids=x.ids", each=3),
        """
        def f(x):
            return Answer(1), Answer(2, ids=x.ids)
        """,
        "a call of `Answer` was found 2 times, expected 3",
        id="two calls where three are expected",
    ),
    pytest.param(
        AddKeyword(FILE, "f", "Answer", "ids=x.ids", each=2),
        """
        def f(x):
            return Answer(1)
        """,
        "a call of `Answer` was found once, expected 2",
        id="one call where two are expected",
    ),
]


@pytest.mark.parametrize(("edit", "before", "after"), REWRITES)
def test_it_rewrites_its_place_once(edit: AddKeyword, before: str, after: str) -> None:
    assert_rewrites(edit, before, after)


@pytest.mark.parametrize(("edit", "source"), NO_OPS)
def test_what_is_there_already_stays(edit: AddKeyword, source: str) -> None:
    assert_no_op(edit, source)


@pytest.mark.parametrize(("edit", "source", "reason"), CONFLICTS)
def test_a_place_that_is_not_as_expected_is_refused(
    edit: AddKeyword, source: str, reason: str
) -> None:
    assert_conflict(edit, source, reason)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (KEYWORD, "argument `ids=` of `Answer`"),
        (
            AddKeyword(FILE, "f", "self.run", "ids = (\n    x\n)"),
            "argument `ids=` of `self.run`",
        ),
    ],
)
def test_it_says_what_it_puts_where(edit: AddKeyword, words: str) -> None:
    assert edit.describe() == words


MALFORMED = [
    (AddKeyword(FILE, "f", "Answer", "x.ids"), "`x.ids` is not one keyword argument"),
    (AddKeyword(FILE, "f", "Answer", "**x"), "`**x` is not one keyword argument"),
    (
        AddKeyword(FILE, "f", "Answer", "a=1, b=2"),
        "`a=1, b=2` is not one keyword argument",
    ),
    (AddKeyword(FILE, "f", "Answer", ""), "`` is not one keyword argument"),
    (
        AddKeyword(FILE, "f", "Answer(", "a=1"),
        "`Answer(` cannot be parsed as an expression: ",
    ),
    (
        AddKeyword(FILE, "f", "Answer", "a=1", each=0),
        "`each` is 0, but must be 1 or more",
    ),
]


@pytest.mark.parametrize(("edit", "reason"), MALFORMED)
def test_a_mistake_of_its_author_is_told(edit: AddKeyword, reason: str) -> None:
    assert edit.describe()
    with pytest.raises(MalformedEdit) as refused:
        edit.check()
    assert str(refused.value).startswith(reason)
