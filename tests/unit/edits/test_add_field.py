from __future__ import annotations

import pytest

from agentcore_patches.edits import AddField
from agentcore_patches.edits.matching import MalformedEdit
from tests.unit.edits.tables import (
    FILE,
    assert_conflict,
    assert_no_op,
    assert_rewrites,
    rewritten,
)

FIELD = AddField(FILE, "Answer", "ids: Optional[List[int]] = None")

REWRITES = [
    pytest.param(
        FIELD,
        """
        class Answer:
            text: str
        """,
        """
        class Answer:
            text: str
            ids: Optional[List[int]] = None
        """,
        id="field after the only one",
    ),
    pytest.param(
        FIELD,
        """
        @dataclass
        class Answer(Base):
            '''An answer.'''

            text: str  # what is said

            # How it ended.
            reason: str = ""

            @property
            def length(self):
                size: int = len(self.text)
                return size


        class Other:
            text: str
        """,
        """
        @dataclass
        class Answer(Base):
            '''An answer.'''

            text: str  # what is said

            # How it ended.
            reason: str = ""
            ids: Optional[List[int]] = None

            @property
            def length(self):
                size: int = len(self.text)
                return size


        class Other:
            text: str
        """,
        id="field before the methods, in the class of that name only",
    ),
    pytest.param(
        FIELD,
        """
        class Answer:
            def first(self): return "first"  # on one line
            # Of the field.
            text: str

            # Of the property.
            @property
            def length(self):
                return len(self.text)
            @length.setter
            def length(self, value):
                pass
            class Inner:
                text: str
        """,
        """
        class Answer:
            def first(self): return "first"  # on one line
            # Of the field.
            text: str
            ids: Optional[List[int]] = None

            # Of the property.
            @property
            def length(self):
                return len(self.text)
            @length.setter
            def length(self, value):
                pass
            class Inner:
                text: str
        """,
        id="field between methods, whatever these are",
    ),
    pytest.param(
        FIELD,
        """
        class Answer:
            text: str = field(
                default="",  # nothing said
            )
            x = 1
        """,
        """
        class Answer:
            text: str = field(
                default="",  # nothing said
            )
            ids: Optional[List[int]] = None
            x = 1
        """,
        id="field after one of several lines",
    ),
    pytest.param(
        AddField(FILE, "Answer", "n: int = 0", note="how many\nas counted"),
        """
        class Answer:
            text: str
        """,
        """
        class Answer:
            text: str
            # agentcore-patch: how many
            # as counted
            n: int = 0
        """,
        id="field with a note",
    ),
    pytest.param(
        AddField(FILE, "Outer.Answer", "n: int = 0"),
        """
        class Answer:
            text: str

        class Outer:
            class Answer:
                text: str
                class Answer: text: str
        """,
        """
        class Answer:
            text: str

        class Outer:
            class Answer:
                text: str
                n: int = 0
                class Answer: text: str
        """,
        id="field of a class in a class",
    ),
]

NO_OPS = [
    pytest.param(
        FIELD,
        """
        class Answer:
            text: str
            ids : Optional[ List[int] ]=None  # somebody's
            more: str
        """,
        id="field, laid out in another way",
    ),
    pytest.param(
        AddField(FILE, "Answer", 'kind: str = "a"'),
        """
        class Answer:
            kind: str = 'a'
        """,
        id="field, with other quotes",
    ),
]

CONFLICTS = [
    pytest.param(FIELD, "", "`Answer` is not defined", id="no class"),
    pytest.param(
        FIELD,
        """
        class Answer:
            text: str
        class Answer:
            text: str
        """,
        "`Answer` is defined 2 times",
        id="class found twice",
    ),
    pytest.param(
        FIELD,
        """
        if True:
            class Answer:
                text: str
        """,
        "`Answer` is not defined",
        id="class under a condition",
    ),
    pytest.param(
        FIELD,
        """
        class Answer:
            ids: list = None
        """,
        "the class has another field of that name: `ids: list = None`",
        id="another field of that name",
    ),
    pytest.param(
        FIELD,
        """
        class Answer:
            text = 1
        """,
        "the class declares no fields",
        id="class without fields",
    ),
    pytest.param(
        FIELD,
        """
        class Answer: text: str
        """,
        "the class declares no fields",
        id="class on one line",
    ),
    pytest.param(
        AddField(FILE, "Outer.Answer", "n: int = 0"),
        """
        class Outer:
            text: str
        class Answer:
            text: str
        """,
        "`Answer` is not defined",
        id="no class in the class",
    ),
]


@pytest.mark.parametrize(("edit", "before", "after"), REWRITES)
def test_it_rewrites_its_place_once(edit: AddField, before: str, after: str) -> None:
    assert_rewrites(edit, before, after)


@pytest.mark.parametrize(("edit", "source"), NO_OPS)
def test_what_is_there_already_stays(edit: AddField, source: str) -> None:
    assert_no_op(edit, source)


@pytest.mark.parametrize(("edit", "source", "reason"), CONFLICTS)
def test_a_place_that_is_not_as_expected_is_refused(
    edit: AddField, source: str, reason: str
) -> None:
    assert_conflict(edit, source, reason)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (FIELD, "field `ids: Optional[List[int]] = None`"),
    ],
)
def test_it_says_what_it_puts_where(edit: AddField, words: str) -> None:
    assert edit.describe() == words


def test_a_class_and_one_inside_it_each_get_theirs() -> None:
    before = """
class Answer:
    text: str

    class Inner:
        text: str

    def method(self): ...
"""
    inner = AddField(FILE, "Answer.Inner", "more: int = 0")
    after = rewritten(before, FIELD, inner)
    assert after == before.replace(
        "    text: str\n\n", f"    text: str\n    {FIELD.declaration}\n\n", 1
    ).replace("        text: str\n", "        text: str\n        more: int = 0\n")


MALFORMED = [
    (AddField(FILE, "Answer", "ids = None"), "`ids = None` does not declare one field"),
    (
        AddField(FILE, "Answer", "self.ids: int = 0"),
        "`self.ids: int = 0` does not declare one field",
    ),
    (
        AddField(FILE, "Answer", "ids: int = "),
        "`ids: int =` cannot be parsed as one statement: ",
    ),
    (AddField(FILE, "Answer", ""), "`` cannot be parsed as one statement: "),
    (AddField(FILE, "", "ids: int = 0"), "the scope `` is not a dotted name"),
    (
        AddField(FILE, "Answer.", "ids: int = 0"),
        "the scope `Answer.` is not a dotted name",
    ),
]


@pytest.mark.parametrize(("edit", "reason"), MALFORMED)
def test_a_mistake_of_its_author_is_told(edit: AddField, reason: str) -> None:
    assert edit.describe()
    with pytest.raises(MalformedEdit) as refused:
        edit.check()
    assert str(refused.value).startswith(reason)
