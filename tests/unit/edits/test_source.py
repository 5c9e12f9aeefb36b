"""Whole files: many definitions at once, encodings, line ends, what cannot be read."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

import pytest

from agentcore_patches.edits import (
    AddField,
    AddKeyword,
    AddParameter,
    Graft,
    Insert,
    apply_edits,
)
from agentcore_patches.errors import SourceConflict
from tests.unit.edits.tables import FILE, assert_bytes, rewritten


def grafted(values: list[int]) -> list[int]:
    """Twice each of them."""
    return [2 * value for value in values]


def method(self: Any) -> Any:
    return self


FIELD = AddField(FILE, "Answer", "ids: Optional[List[int]] = None")
BEFORE = Insert(FILE, "f", "log(data)", before="return data")
GRAFT = Graft(FILE, "Answer", grafted, note="doubles")
METHOD = Graft(FILE, "Answer", method, inside=True, note="itself")


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
        f"{FILE}: in `Answer.f`, cannot place {edit.describe()}: {found}"
    )


def test_each_edit_tells_whether_it_changed_anything() -> None:
    source = b"class Answer:\n    text: str\n    n: int = 0\n"
    edits = [AddField(FILE, "Answer", "n: int = 0"), FIELD]
    assert apply_edits(source, edits)[1] == (False, True)


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
    assert_bytes(edit, before, after)


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
    pytest.param(b"def f(data:\n", "cannot be parsed as Python", id="half"),
    pytest.param(
        b"def f(data):\n    return \x00data\n", "cannot be parsed as Python", id="NUL"
    ),
    pytest.param(b"x = '\xff'\n", "cannot be decoded", id="no UTF-8"),
    pytest.param(b"# coding: nonsense\n", "cannot be decoded", id="no such"),
    pytest.param(b"# coding: rot13\n", "cannot be decoded", id="no text"),
    pytest.param(b"x = " + b"(" * 9999, "cannot be parsed as Python", id="deep"),
    pytest.param(
        b"x = " + b"-" * 99999 + b"1", "cannot be parsed as Python", id="deeper"
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


def test_a_graft_inside_a_class_that_ends_the_file_has_a_line_end_before_it() -> None:
    new = rewritten("class Answer:\n    text: str", METHOD)
    assert new == (
        "class Answer:\n    text: str\n    # agentcore-patch: itself\n"
        "    def method(self: Any) -> Any:\n        return self\n"
    )
