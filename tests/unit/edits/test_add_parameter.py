from __future__ import annotations

import pytest

from agentcore_patches.edits import AddParameter
from agentcore_patches.edits.matching import MalformedEdit
from tests.unit.edits.tables import (
    FILE,
    assert_conflict,
    assert_no_op,
    assert_rewrites,
)

PARAMETER = AddParameter(FILE, "f", "trace: Optional[Trace] = None")

REWRITES = [
    pytest.param(
        PARAMETER,
        """
        def f(): pass
        """,
        """
        def f(trace: Optional[Trace] = None): pass
        """,
        id="the only parameter",
    ),
    pytest.param(
        PARAMETER,
        """
        def f(self, index): pass
        """,
        """
        def f(self, index, trace: Optional[Trace] = None): pass
        """,
        id="parameter on the line",
    ),
    pytest.param(
        PARAMETER,
        """
        async def f(
            self,
            index: int,  # of the choice
        ) -> None:
            pass
        """,
        """
        async def f(
            self,
            index: int,  # of the choice
            trace: Optional[Trace] = None,
        ) -> None:
            pass
        """,
        id="parameter on a line of its own",
    ),
    pytest.param(
        PARAMETER,
        """
        def f(
            self,  # me
            index  # it
        ):
            pass
        """,
        """
        def f(
            self,  # me
            index,  # it
            trace: Optional[Trace] = None
        ):
            pass
        """,
        id="parameter where no comma trails, comments stay with theirs",
    ),
    pytest.param(
        PARAMETER,
        """
        def f(
            self,
        ):
            pass
        """,
        """
        def f(
            self,
            trace: Optional[Trace] = None,
        ):
            pass
        """,
        id="parameter below a single one",
    ),
    pytest.param(
        PARAMETER,
        """
        def f(
            self, index
        ):
            pass
        """,
        """
        def f(
            self, index, trace: Optional[Trace] = None
        ):
            pass
        """,
        id="parameter of a line that is indented as a whole",
    ),
    pytest.param(
        PARAMETER,
        """
        def f(self, *, index=0, **rest): pass
        """,
        """
        def f(self, *, index=0, trace: Optional[Trace] = None, **rest): pass
        """,
        id="parameter after the keyword-only ones",
    ),
    pytest.param(
        PARAMETER,
        """
        def f(self, *args): return args
        """,
        """
        def f(self, *args, trace: Optional[Trace] = None): return args
        """,
        id="parameter that does not take a positional argument from *args",
    ),
    pytest.param(
        PARAMETER,
        """
        def f(
            self,
            index,  # it
            **rest,
        ): pass
        """,
        """
        def f(
            self,
            index,  # it
            trace: Optional[Trace] = None,
            **rest,
        ): pass
        """,
        id="parameter before **kwargs",
    ),
    pytest.param(
        PARAMETER,
        """
        def f(self, /): pass
        """,
        """
        def f(self, /, trace: Optional[Trace] = None): pass
        """,
        id="parameter after the positional-only ones",
    ),
]

NO_OPS = [
    pytest.param(
        PARAMETER,
        """
        def f(
            trace:Optional[Trace]=None, /, more=1
        ): pass
        """,
        id="parameter, at another place",
    ),
    pytest.param(
        PARAMETER,
        """
        def f(*, trace: Optional[Trace] = (None)): pass
        """,
        id="parameter, keyword-only",
    ),
]

CONFLICTS = [
    pytest.param(
        PARAMETER,
        """
        class f: x: int
        """,
        "it is a class, not a function",
        id="no function but a class",
    ),
    pytest.param(
        PARAMETER,
        """
        def f(trace=None): pass
        """,
        "the function has another parameter of that name: `trace=None`",
        id="another parameter of that name",
    ),
    pytest.param(
        PARAMETER,
        """
        def f(*, trace: Optional[Trace]): pass
        """,
        "the function has another parameter of that name: `trace: Optional[Trace]`",
        id="another keyword-only parameter of that name",
    ),
]


@pytest.mark.parametrize(("edit", "before", "after"), REWRITES)
def test_it_rewrites_its_place_once(
    edit: AddParameter, before: str, after: str
) -> None:
    assert_rewrites(edit, before, after)


@pytest.mark.parametrize(("edit", "source"), NO_OPS)
def test_what_is_there_already_stays(edit: AddParameter, source: str) -> None:
    assert_no_op(edit, source)


@pytest.mark.parametrize(("edit", "source", "reason"), CONFLICTS)
def test_a_place_that_is_not_as_expected_is_refused(
    edit: AddParameter, source: str, reason: str
) -> None:
    assert_conflict(edit, source, reason)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (PARAMETER, "parameter `trace: Optional[Trace] = None`"),
    ],
)
def test_it_says_what_it_puts_where(edit: AddParameter, words: str) -> None:
    assert edit.describe() == words


MALFORMED = [
    (AddParameter(FILE, "f", "trace"), "`trace` is not one parameter with a default"),
    (
        AddParameter(FILE, "f", "a=1, b=2"),
        "`a=1, b=2` is not one parameter with a default",
    ),
    (AddParameter(FILE, "f", "**rest"), "`**rest` is not one parameter with a default"),
    (AddParameter(FILE, "f", ""), "`` is not one parameter with a default"),
    (
        AddParameter(FILE, "f", "a="),
        "`def _(a=): ...` cannot be parsed as one statement: ",
    ),
]


@pytest.mark.parametrize(("edit", "reason"), MALFORMED)
def test_a_mistake_of_its_author_is_told(edit: AddParameter, reason: str) -> None:
    assert edit.describe()
    with pytest.raises(MalformedEdit) as refused:
        edit.check()
    assert str(refused.value).startswith(reason)
