from __future__ import annotations

import ast
import io
import tokenize
from textwrap import dedent
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcore_patches.edits import (
    AddField,
    AddKeyword,
    AddParameter,
    Edit,
    Graft,
    Insert,
    Narrow,
    Replace,
    apply_edits,
)
from agentcore_patches.errors import SourceConflict

FILE = "srt/module.py"


def grafted(values: list[int]) -> list[int]:
    """Twice each of them."""
    return [2 * value for value in values]


def method(self: Any) -> Any:
    return self


def rewritten(source: str, *edits: Edit) -> str:
    return apply_edits(source.encode(), edits)[0].decode()


def assert_rewrites(source: bytes, edit: Edit, expected: bytes) -> None:
    """The edit turns one into the other, and leaves the other as it is."""
    assert apply_edits(source, [edit]) == (expected, (True,))
    assert apply_edits(expected, [edit]) == (expected, (False,))
    compile(expected, FILE, "exec")


FIELD = AddField(FILE, "Answer", "ids: Optional[List[int]] = None")
PARAMETER = AddParameter(FILE, "f", "trace: Optional[Trace] = None")
KEYWORD = AddKeyword(FILE, "f", "Answer", "ids=x.ids")
BEFORE = Insert(FILE, "f", "log(data)", before="return data")
AFTER = Insert(FILE, "f", "log(state)", after="state = make(...)")
START = Insert(FILE, "f", "trace = None")
REPLACE = Replace(FILE, "f", "ids = [ids[-1]]", "ids = []", note="none")
REPLACE_EACH = Replace(FILE, "f", "yield dump(X)", "yield send(X)", each=True)
NARROW = Narrow(FILE, "f", "if wanted: ...", "trace is None")
GRAFT = Graft(FILE, "Answer", grafted, note="doubles")
METHOD = Graft(FILE, "Answer", method, inside=True, note="itself")

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
        KEYWORD,
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
        KEYWORD,
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
            yield send(a)
            if a:
                yield dump(a.b)  # part of it
        """,
        """
        def f(a):
            yield send(a)
            yield send(a)
            if a:
                yield send(a.b)  # part of it
        """,
        id="replace each",
    ),
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


@pytest.mark.parametrize(("edit", "before", "after"), REWRITES)
def test_an_edit_rewrites_its_place_once(edit: Edit, before: str, after: str) -> None:
    assert_rewrites(dedent(before).encode(), edit, dedent(after).encode())


@pytest.mark.parametrize(("edit", "before", "after"), REWRITES)
def test_line_ends_stay_as_they_are(edit: Edit, before: str, after: str) -> None:
    crlf = [dedent(text).replace("\n", "\r\n").encode() for text in (before, after)]
    assert_rewrites(crlf[0], edit, crlf[1])


@pytest.mark.parametrize(("edit", "before", "after"), REWRITES)
def test_a_missing_last_line_end_stays_missing(
    edit: Edit, before: str, after: str
) -> None:
    source, expected = dedent(before).rstrip(), dedent(after).rstrip()
    assert_rewrites(source.encode(), edit, expected.encode())


def test_a_graft_inside_a_class_that_ends_the_file_has_a_line_end_before_it() -> None:
    new = rewritten("class Answer:\n    text: str", METHOD)
    assert new == (
        "class Answer:\n    text: str\n    # agentcore-patch: itself\n"
        "    def method(self: Any) -> Any:\n        return self\n"
    )


PRESENT = [
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
    pytest.param(
        NARROW,
        """
        def f(wanted):
            if (wanted) and (trace is None):
                pass
        """,
        id="narrowed",
    ),
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


@pytest.mark.parametrize(("edit", "source"), PRESENT)
def test_what_is_there_already_stays_byte_for_byte(edit: Edit, source: str) -> None:
    bare = dedent(source).encode()
    for text in (bare, b"\n".join(bare.split(b"\n")), bare.replace(b"\n", b"\r\n")):
        assert apply_edits(text, [edit]) == (text, (False,))


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
        "it has another one: `ids: list = None`",
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
    pytest.param(
        PARAMETER,
        """
        class f: x: int
        """,
        "it is not a function",
        id="no function but a class",
    ),
    pytest.param(
        PARAMETER,
        """
        def f(trace=None): pass
        """,
        "it has another one: `trace=None`",
        id="another parameter of that name",
    ),
    pytest.param(
        PARAMETER,
        """
        def f(*, trace: Optional[Trace]): pass
        """,
        "it has another one: `trace: Optional[Trace]`",
        id="another keyword-only parameter of that name",
    ),
    pytest.param(
        KEYWORD,
        """
        def f(x):
            return answer(x)

        def g(x):
            return Answer(x)
        """,
        "`Answer` is not called there",
        id="no call",
    ),
    pytest.param(
        KEYWORD,
        """
        def f(x):
            return Answer(x), Answer(ids=x.output_ids)
        """,
        "a call has another one: `ids=x.output_ids`",
        id="another argument of that name",
    ),
    pytest.param(
        BEFORE,
        """
        def f(data):
            return data.x
        """,
        "that place is not there",
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
        "that place is there 2 times",
        id="two anchors",
    ),
    pytest.param(
        BEFORE,
        """
        def f(data):
            if data: return data
        """,
        "that place is not there",
        id="anchor in a suite on the line of its `if`",
    ),
    pytest.param(
        BEFORE,
        """
        def f(data):
            data += 1; return data
        """,
        "that place is not there",
        id="anchor that shares its line",
    ),
    pytest.param(
        BEFORE,
        """
        def f(data): return data
        """,
        "that place is not there",
        id="anchor on the line of its function",
    ),
    pytest.param(
        START,
        """
        def f(data): return data
        """,
        "its body stands on one line",
        id="start of a function on one line",
    ),
    pytest.param(
        REPLACE,
        """
        def f(ids):
            ids = ids[-1:]
        """,
        "that place is not there",
        id="nothing to replace",
    ),
    pytest.param(
        REPLACE,
        """
        def f(ids):
            ids = [ids[-1]]
            ids = [ids[-1]]
        """,
        "that place is there 2 times",
        id="two to replace",
    ),
    pytest.param(
        REPLACE,
        """
        def f(ids):
            ids = []
            ids = []
        """,
        "that place is not there",
        id="replaced twice",
    ),
    pytest.param(
        REPLACE_EACH,
        """
        def f(a):
            yield a
        """,
        "that place is not there",
        id="none of each to replace",
    ),
    pytest.param(
        NARROW,
        """
        def f(wanted):
            if not wanted:
                pass
            elif wanted:
                pass
        """,
        "that place is not there",
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
        "that place is there 2 times",
        id="two to narrow",
    ),
    pytest.param(
        GRAFT,
        """
        def grafted(values):
            return values

        class Answer: pass
        """,
        "the file has another one",
        id="another definition of that name",
    ),
    pytest.param(
        METHOD,
        """
        class Answer:
            def method(self: Any) -> Any: return self
            def method(self: Any) -> Any: return self
        """,
        "the file has another one",
        id="the method twice",
    ),
    pytest.param(
        METHOD,
        """
        class Answer:
            def method(self):
                return None
        """,
        "the file has another one",
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


@pytest.mark.parametrize(("edit", "source", "found"), CONFLICTS)
def test_a_place_that_is_not_as_expected_is_refused_by_name(
    edit: Edit, source: str, found: str
) -> None:
    with pytest.raises(SourceConflict) as refused:
        rewritten(dedent(source), edit)
    message = str(refused.value)
    assert message == (
        f"{FILE}: in `{edit.scope}`, looked for the place of {edit.describe()}, "
        f"but {found}"
    )


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (FIELD, "field `ids: Optional[List[int]] = None`"),
        (PARAMETER, "parameter `trace: Optional[Trace] = None`"),
        (KEYWORD, "`ids=` in calls of `Answer`"),
        (BEFORE, "`log(data)` before `return data`"),
        (AFTER, "`log(state)` after `state = make(...)`"),
        (START, "`trace = None` at the start"),
        (REPLACE, "`ids = []` for `ids = [ids[-1]]`"),
        (Replace(FILE, "f", "a(\n)", "b(\n)"), "`b(` for `a(`"),
        (NARROW, "`trace is None` in `if wanted: ...`"),
        (GRAFT, "definition of `grafted`"),
    ],
)
def test_an_edit_says_what_it_looks_for(edit: Edit, words: str) -> None:
    assert edit.describe() == words


SHAPES = [
    ('x = get("index", 0)', "x = get('index', 0)", True),
    ('x = get("index", 0)', "x = get(\n    'index',\n    0,\n)  # it", True),
    ('x = "it\'s"', "x = 'it\\'s'", True),
    ('x = f"a {b}\\n"', "x = (f'a {b}\\n')", True),
    ('x = f"a {b}"', 'x = "a {b}"', False),
    ('x = "a"', 'x = b"a"', False),
    ("return a, b", "return (a, b,)", True),
    ("return a, b", "return b, a", False),
    ("x = f(...)", "x = f()", True),
    ("x = f(...)", "x = f(1, *a, k=2, **b)", True),
    ("x = f(...)", "x = g(1)", False),
    ("x = f(..., 1)", "x = f(2, 1)", True),
    ("x = f(..., 1)", "x = f(2, 2, 1)", False),
    ("f(X, X)", "f(a.b, a . b)", True),
    ("f(X, X)", "f(a, b)", False),
    ("if a: ...", "if a:\n    b()\nelse:\n    c()", True),
    ("if a: ...", "if a: b()", True),
    ("if a: ...", "if (a):\n    b()\nelif c: pass", True),
    ("if a: ...", "if a and b:\n    c()", False),
    ("if a: b()", "if a: c()", False),
    ("return X", "return", False),
    ("x: int = 1", "x = 1", False),
    ("x = 1", "x = y = 1", False),
    ("await f()", "f()", False),
    ("for x in y: ...", "async for x in y: pass", False),
    ("x = a if b else c", "x = (\n    a\n    if b\n    else c\n)", True),
    ("x = f'{a:>{b}}'", "x = f'{a}'", False),
    ("x = a[0]", "x = a[ 0 ]", True),
    ("x = a[0]", "x = a[1]", False),
    ("x = -a", "x = ~a", False),
    ("x = a == b", "x = a != b", False),
    ("x = lambda a: a", "x = lambda: a", False),
    ("x = {**a}", "x = {'b': 1}", False),
    ("x = (yield a)", "x = yield (a)", True),
    ("assert a, b", "assert (a), \\\n    b", True),
    ("del a", "del a, b", False),
    ("with a as b: ...", "with a:\n    pass", False),
    ("from a import b", "from a import b as c", False),
    ("global a", "nonlocal a", False),
    ("raise A(...) from b", "raise A()", False),
    ("try: ...\nexcept A: ...", "try:\n    a\nexcept A:\n    b", True),
    ("try: ...\nexcept A: ...", "try:\n    a\nfinally:\n    b", False),
    ("@a\ndef f(): ...", "def f(): pass", False),
]


@pytest.mark.parametrize(("shape", "statement", "matches"), SHAPES)
def test_a_shape_is_code_whatever_its_layout(
    shape: str, statement: str, matches: bool
) -> None:
    body = "\n".join(f"    {line}" for line in statement.splitlines())
    source = f"async def f():\n    before()\n{body}\n    after()\n"
    edit = Insert(FILE, "f", "found()", before=shape)
    if matches:
        expected = source.replace("before()\n", "before()\n    found()\n")
        assert rewritten(source, edit) == expected
    else:
        with pytest.raises(SourceConflict, match=r"is not there|is not defined"):
            rewritten(source, edit)


@pytest.mark.parametrize(
    "block",
    [
        "if x:\n    return data",
        "if x:\n    pass\nelse:\n    return data",
        "if x:\n    pass\nelif y:\n    return data",
        "for x in y:\n    return data",
        "while x:\n    pass\nelse:\n    return data",
        "with x:\n    return data",
        "try:\n    return data\nexcept E:\n    pass",
        "try:\n    pass\nexcept E:\n    return data",
        "try:\n    pass\nexcept E:\n    pass\nelse:\n    return data",
        "try:\n    pass\nfinally:\n    return data",
        "match x:\n    case 1:\n        pass\n    case 2:\n        return data",
        "def inner():\n    return data",
        "class Inner:\n    def f(self):\n        return data",
    ],
)
def test_an_anchor_is_found_in_every_kind_of_block(block: str) -> None:
    body = "".join(f"    {line}\n" for line in block.splitlines())
    source = f"def f(data):\n{body}"
    indented = next(line for line in body.splitlines() if "return" in line)
    new = indented.replace("return data", "log(data)")
    expected = source.replace(indented, f"{new}\n{indented}")
    assert_rewrites(source.encode(), BEFORE, expected.encode())


def test_new_code_has_its_own_words_however_capital() -> None:
    source = "def f(data):\n    log(other)\n    return data\n"
    edit = Insert(FILE, "f", "log(NAME)", before="return data")
    expected = "def f(data):\n    log(other)\n    log(NAME)\n    return data\n"
    assert rewritten(source, edit) == expected


def test_one_text_takes_edits_of_many_definitions() -> None:
    source = dedent(
        """
        class Answer:
            text: str

            def f(self, data):
                return data

            def g(self):
                return Answer()
        """
    )
    edits = [
        GRAFT,
        METHOD,
        Insert(FILE, "Answer.f", "log(data)", before="return data"),
        FIELD,
        AddKeyword(FILE, "Answer.g", "Answer", "ids=self.ids"),
        AddField(FILE, "Answer", "n: int = 0"),
        AddParameter(FILE, "Answer.f", "trace=None"),
    ]
    expected = dedent(
        '''
        # agentcore-patch: doubles
        def grafted(values: list[int]) -> list[int]:
            """Twice each of them."""
            return [2 * value for value in values]


        class Answer:
            text: str
            ids: Optional[List[int]] = None
            n: int = 0

            def f(self, data, trace=None):
                log(data)
                return data

            def g(self):
                return Answer(ids=self.ids)

            # agentcore-patch: itself
            def method(self: Any) -> Any:
                return self
        '''
    )
    new, changed = apply_edits(source.encode(), edits)
    assert new.decode() == expected
    assert changed == (True,) * len(edits)
    assert apply_edits(new, edits) == (new, (False,) * len(edits))


@pytest.mark.parametrize(
    ("members", "found"),
    [
        ("    g = 1\n", "`f` is not defined"),
        ("    def f(self): pass\n" * 2, "`f` is defined 2 times"),
    ],
)
def test_a_member_is_looked_for_where_its_class_is_changed_as_well(
    members: str, found: str
) -> None:
    edit = Insert(FILE, "Answer.f", "log(data)", before="return data")
    with pytest.raises(SourceConflict) as refused:
        rewritten(f"class Answer:\n    text: str\n{members}", FIELD, edit)
    assert str(refused.value) == (
        f"{FILE}: in `Answer.f`, looked for the place of {edit.describe()}, but {found}"
    )


def test_each_edit_tells_whether_it_changed_anything() -> None:
    source = b"class Answer:\n    text: str\n    n: int = 0\n"
    edits = [AddField(FILE, "Answer", "n: int = 0"), FIELD]
    assert apply_edits(source, edits)[1] == (False, True)


# Bytes: what stands around a changed definition, and in it, is kept.

BYTES = [
    pytest.param(
        b"# -*- coding: latin-1 -*-\nname = '\xe9'\ndef f(data):\n    return data # \xe9",
        b"# -*- coding: latin-1 -*-\nname = '\xe9'\n"
        b"def f(data):\n    log(data)\n    return data # \xe9",
        id="a coding cookie",
    ),
    pytest.param(
        b"\xef\xbb\xbfdef f(data):\n    return data\n",
        b"\xef\xbb\xbfdef f(data):\n    log(data)\n    return data\n",
        id="a byte order mark",
    ),
    pytest.param(
        "x = 'a\u2028b\x85c\x1cd\x0be'\ndef f(data):\n    y = '\u2029'\n    return data\n".encode(),
        "x = 'a\u2028b\x85c\x1cd\x0be'\ndef f(data):\n    y = '\u2029'\n    log(data)\n"
        "    return data\n".encode(),
        id="line separators that Python does not count",
    ),
    pytest.param(
        b"x = 1\n\x0c\ny = 2\n\x0c\ndef f(data):\n    return data\n\x0c\n",
        b"x = 1\n\x0c\ny = 2\n\x0c\ndef f(data):\n    log(data)\n    return data\n\x0c\n",
        id="form feeds around",
    ),
    pytest.param(
        b"def f(data):\n    x = 1\n\x0c\n    return data\n",
        b"def f(data):\n    x = 1\n    log(data)\n\x0c\n    return data\n",
        id="a form feed inside",
    ),
    pytest.param(
        b"x = 1\r\ndef f(data):\r\n    y = 2\n    return data\r\n\nz = 3\n",
        b"x = 1\r\ndef f(data):\r\n    y = 2\n    log(data)\r\n    return data\r\n\nz = 3\n",
        id="mixed line ends",
    ),
    pytest.param(
        b"def f(data):\n\tif data:\n\t\treturn data\n",
        b"def f(data):\n\tif data:\n\t\tlog(data)\n\t\treturn data\n",
        id="tabs",
    ),
    pytest.param(
        b"def f(data):\n  return data\n",
        b"def f(data):\n  log(data)\n  return data\n",
        id="indentation by two",
    ),
    pytest.param(
        b'x = """\ndef f(data):\n    return data\n"""\ndef f(data):\n    return data   \n \t \n',
        b'x = """\ndef f(data):\n    return data\n"""\n'
        b"def f(data):\n    log(data)\n    return data   \n \t \n",
        id="code in a string, and trailing blanks",
    ),
    pytest.param(
        b"a = 1; b = 2\ndef f(data):\n    c = 3; d = 4;\n    return data;\n",
        b"a = 1; b = 2\ndef f(data):\n    c = 3; d = 4;\n    log(data)\n    return data;\n",
        id="semicolons",
    ),
    pytest.param(
        b"def f(data):\n    x = 1 + \\\n        2\n    return \\\n        data\n",
        b"def f(data):\n    x = 1 + \\\n        2\n    log(data)\n    return \\\n        data\n",
        id="backslashes",
    ),
    pytest.param(
        b'class A:\n    x = """\nno\n"""\ndef f(data):\n    y = """\nno\n  """\n    return data\n',
        b'class A:\n    x = """\nno\n"""\ndef f(data):\n    y = """\nno\n  """\n'
        b"    log(data)\n    return data\n",
        id="strings of several lines",
    ),
    pytest.param(
        b"def f(data):\n# left\n    x = 1\n  # odd\n    # right\n    return data\n# end\n",
        b"def f(data):\n# left\n    x = 1\n    log(data)\n"
        b"  # odd\n    # right\n    return data\n# end\n",
        id="comments at any depth",
    ),
]


@pytest.mark.parametrize(("before", "after"), BYTES)
def test_every_other_byte_is_kept(before: bytes, after: bytes) -> None:
    edit = Insert(FILE, "f", "log(data)", before="return data")
    assert_rewrites(before, edit, after)


def test_a_block_put_among_tabs_is_python() -> None:
    source = b"class A:\n\tdef f(data):\n\t\treturn data\n"
    edit = Insert(FILE, "A.f", "if data:\n    log(data)", before="return data")
    new, _ = apply_edits(source, [edit])
    compile(new, FILE, "exec")
    assert apply_edits(new, [edit]) == (new, (False,))


def test_a_comment_at_the_top_of_the_file_stays_with_its_definition() -> None:
    new = rewritten("# An answer.\nclass Answer:\n    pass\n", GRAFT)
    assert new.startswith("# agentcore-patch: doubles\n")
    assert new.endswith("\n\n# An answer.\nclass Answer:\n    pass\n")


def test_a_string_of_many_lines_above_a_definition_is_no_comment() -> None:
    source = 'x = """\n# not a comment"""\nclass Answer:\n    pass\n'
    new = rewritten(source, GRAFT)
    assert new.startswith('x = """\n# not a comment"""\n# agentcore-patch: doubles\n')


NO_SOURCES = [
    pytest.param(b"", "`f` is not defined", id="nothing"),
    pytest.param(b"def f(data:\n", "is no Python that can be parsed", id="half"),
    pytest.param(b"def f(data):\n    return \x00data\n", "is no Python", id="NUL"),
    pytest.param(b"x = '\xff'\n", "is no text in its encoding", id="no UTF-8"),
    pytest.param(b"# coding: nonsense\n", "is no text in its encoding", id="no such"),
    pytest.param(b"# coding: rot13\n", "is no text in its encoding", id="no text"),
    pytest.param(b"x = " + b"(" * 9999, "is no Python that can be parsed", id="deep"),
    pytest.param(
        b"x = " + b"-" * 99999 + b"1", "is no Python that can be parsed", id="deeper"
    ),
    pytest.param(
        b"\x0cdef f(data):\n    return data\n",
        "it has form feeds, or carriage returns as line ends",
        id="form feed before a definition",
    ),
    pytest.param(
        b"def f(data):\r    return data\rx = 1\r",
        "it has form feeds, or carriage returns as line ends",
        id="carriage returns",
    ),
]


@pytest.mark.parametrize(("source", "words"), NO_SOURCES)
def test_what_cannot_be_read_is_refused(source: bytes, words: str) -> None:
    with pytest.raises(SourceConflict) as refused:
        apply_edits(source, [BEFORE])
    assert words in str(refused.value)
    assert FILE in str(refused.value)


# Layouts that nobody wrote down: by properties


def comments(source: str) -> list[str]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return [token.string for token in tokens if token.type == tokenize.COMMENT]


@st.composite
def items(draw: st.DrawFn, kinds: list[list[str]]) -> str:
    """A parenthesized list: some of each kind, in order, laid out in any way."""
    chosen = [item for kind in kinds for item in kind if draw(st.booleans())]
    gap = st.sampled_from(["", " ", "\n    ", "  # note\n        ", "\n    # own\n\n "])
    text = draw(gap)
    for index, item in enumerate(chosen):
        last = index + 1 == len(chosen)
        comma = draw(st.sampled_from(["", ","])) if last else ","
        before, after = draw(gap), draw(gap)
        text += f"{item}{before}{comma}{after}"
    return f"({text})"


@settings(deadline=None)
@given(items([["a", "b.c"], ["*d"], ['e="f"', "g=(h)"], ["**i"]]))
def test_a_call_of_any_layout_gets_its_keyword_and_keeps_its_comments(
    arguments: str,
) -> None:
    source = f"def f(x):\n    x = Answer{arguments}  # end\n"
    new = rewritten(source, KEYWORD)

    call = next(node for node in ast.walk(ast.parse(new)) if isinstance(node, ast.Call))
    added = [keyword for keyword in call.keywords if keyword.arg == "ids"]
    assert [ast.unparse(keyword) for keyword in added] == ["ids=x.ids"]
    call.keywords.remove(added[0])
    old = next(
        node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)
    )
    assert ast.dump(call) == ast.dump(old)
    assert comments(new) == comments(source)
    assert rewritten(new, KEYWORD) == new


@settings(deadline=None)
@given(items([["a", "b: int"], ["c=1", "d: str = 'e'"], ["*f"], ["g=2"], ["**h"]]))
def test_a_function_of_any_layout_gets_its_parameter_and_keeps_its_comments(
    parameters: str,
) -> None:
    source = f"def f{parameters}:  # end\n    pass\n"
    edit = AddParameter(FILE, "f", "trace=None")
    new = rewritten(source, edit)

    namespace: dict[str, object] = {}
    function = ast.parse(new).body[0]
    old = ast.parse(source).body[0]
    assert isinstance(function, ast.FunctionDef)
    assert isinstance(old, ast.FunctionDef)
    exec(compile(new, FILE, "exec"), namespace)
    args, before = function.args, old.args
    both = [(args.args, before.args, args.defaults, before.defaults)]
    both += [(args.kwonlyargs, before.kwonlyargs, args.kw_defaults, before.kw_defaults)]  # type: ignore[list-item]
    grown, kept = both if before.vararg is None else both[::-1]
    assert [arg.arg for arg in grown[0]] == [*(arg.arg for arg in grown[1]), "trace"]
    assert [arg.arg for arg in kept[0]] == [arg.arg for arg in kept[1]]
    assert comments(new) == comments(source)
    assert rewritten(new, edit) == new


@st.composite
def bodies(draw: st.DrawFn, depth: int = 0) -> list[str]:
    """Lines of a block; where `return data` may stand is marked by a line `HERE`."""
    lines: list[str] = []
    for _ in range(draw(st.integers(0, 3))):
        lines += draw(st.sampled_from([[], [""], ["# why"], ["HERE"]]))
        kinds = ["x = 1", "y = [\n    2,  # two\n]", "pass;  x = 3", "z = '''\n  4'''"]
        opening = draw(
            st.sampled_from(["if x:", "for x in y:", "try:", "def g():", ""])
        )
        if opening and depth < 3:
            inner = [*draw(bodies(depth + 1)), "pass"]
            lines += [opening, *(f"    {line}" if line else "" for line in inner)]
            lines += ["finally:", "    x = 5"] if opening == "try:" else []
        else:
            lines += draw(st.sampled_from(kinds)).splitlines()
    return lines


@settings(deadline=None)
@given(bodies(), st.data())
def test_an_insertion_adds_its_lines_and_touches_no_other(
    body: list[str], data: st.DataObject
) -> None:
    lines = [
        "def f(data):",
        *(f"    {line}" if line else "" for line in body),
        "    HERE",
    ]
    marks = [number for number, line in enumerate(lines) if line.strip() == "HERE"]
    chosen = data.draw(st.sampled_from(marks))
    anchor = lines[chosen].replace("HERE", "return data  # all")
    lines[chosen] = anchor
    source = "".join(f"{line}\n" for line in lines if line.strip() != "HERE")
    added = anchor.replace("return data  # all", "log(data)") + "\n"
    new = rewritten(source, BEFORE)
    head, _, tail = new.partition(added)
    assert head + tail == source
    # Blank lines and comments above a statement stay with it.
    between = tail[: tail.index(anchor)].splitlines()
    assert all(line.strip() in ("", "# why") for line in between)
    assert rewritten(new, BEFORE) == new
