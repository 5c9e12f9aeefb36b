"""Whole files: many definitions at once, encodings, line ends, unreadable files."""

from __future__ import annotations

from dataclasses import replace
from textwrap import dedent

import pytest

from agentcore_patches.edits import (
    AddField,
    AddKeyword,
    AddMethod,
    AddParameter,
    Decorate,
    Edit,
    Import,
    Insert,
    InvalidEdit,
    Land,
    RefuseField,
    apply_edits,
)
from agentcore_patches.errors import SourceConflict
from tests.unit.edits.tables import FILE, assert_bytes, assert_refused, rewritten

FIELD = AddField(FILE, "Answer", "ids: Optional[List[int]] = None")
BEFORE = Insert(FILE, "f", "log(data)", before="return data")
METHOD = AddMethod(FILE, "Answer", "def method(self):\n    return self", note="itself")
IMPORT = Import(FILE, "sglang.srt", "agentcore", note="calls")


def test_one_file_takes_edits_of_many_definitions() -> None:
    source = dedent(
        """
        import os

        class Answer:
            text: str

            def f(self, data):
                return data

            def g(self):
                return Answer()

        class Other: pass
        """
    )
    edits = [
        RefuseField(FILE, "Answer", ("trace",)),
        METHOD,
        Insert(FILE, "Answer.f", "log(data)", before="return data"),
        AddMethod(FILE, "Answer", "def last(self): ..."),
        FIELD,
        AddKeyword(FILE, "Answer.g", "Answer", "ids=self.ids"),
        Import(FILE, "sglang.srt", "agentcore"),
        AddField(FILE, "Answer", "n: int = 0"),
        Import(FILE, "sglang.srt", "absent"),
        AddParameter(FILE, "Answer.f", "trace=None"),
        Decorate(FILE, "Answer.f", "agentcore.wrap"),
    ]
    expected = dedent(
        """
        import os
        from sglang.srt import agentcore
        from sglang.srt import absent

        class Answer:
            text: str
            ids: Optional[List[int]] = None
            n: int = 0

            @agentcore.wrap
            def f(self, data, trace=None):
                log(data)
                return data

            def g(self):
                return Answer(ids=self.ids)

            # agentcore-patch: itself
            def method(self):
                return self

            def last(self): ...

        class Other: pass
        """
    )
    changes = tuple(not isinstance(edit, RefuseField) for edit in edits)
    new, changed = apply_edits(source.encode(), edits)
    assert new.decode() == expected
    assert changed == changes
    assert apply_edits(new, edits) == (new, (False,) * len(edits))


@pytest.mark.parametrize(
    ("members", "found"),
    [
        ("    g = 1\n", "`f` is not defined"),
        ("    def f(self): pass\n" * 2, "`f` is defined 2 times"),
    ],
)
def test_a_member_is_searched_for_in_a_class_that_changes_too(
    members: str, found: str
) -> None:
    edit = Insert(FILE, "Answer.f", "log(data)", before="return data")
    with pytest.raises(SourceConflict) as refused:
        rewritten(f"class Answer:\n    text: str\n{members}", FIELD, edit)
    assert str(refused.value) == (
        f"{FILE}: in `Answer.f`, cannot place {edit.describe()}: {found}"
    )


def test_a_method_of_an_inner_class_is_refused_beside_edits_around_it() -> None:
    source = b"class Answer:\n    class Inner:\n        n: int\n\n    text: str\n"
    inner = AddMethod(FILE, "Answer.Inner", "def method(self): ...")
    with pytest.raises(InvalidEdit, match="a method is for a class in a definition"):
        apply_edits(source, [inner, FIELD])


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
    assert_bytes(BEFORE, before, after)


def test_a_block_inserted_among_tabs_compiles() -> None:
    source = b"class A:\n\tdef f(data):\n\t\treturn data\n"
    edit = Insert(FILE, "A.f", "if data:\n    log(data)", before="return data")
    new, _ = apply_edits(source, [edit])
    compile(new, FILE, "exec")
    assert apply_edits(new, [edit]) == (new, (False,))


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
def test_an_unreadable_file_is_refused(source: bytes, words: str) -> None:
    with pytest.raises(SourceConflict) as refused:
        apply_edits(source, [BEFORE])
    assert words in str(refused.value)
    assert FILE in str(refused.value)


WITHOUT_LAST_LINE_END = [
    pytest.param(
        METHOD,
        b"class Answer:\n    text: str",
        b"class Answer:\n    text: str\n\n    # agentcore-patch: itself\n"
        b"    def method(self):\n        return self\n",
        id="a method of the last class",
    ),
    pytest.param(
        IMPORT,
        b"x = 1\r\nimport os",
        b"x = 1\r\nimport os\r\n"
        b"from sglang.srt import agentcore  # agentcore-patch: calls\r\n",
        id="an import below the last line",
    ),
    pytest.param(
        IMPORT,
        b"\xef\xbb\xbffrom sglang.srt.x import y",
        b"\xef\xbb\xbffrom sglang.srt import agentcore  # agentcore-patch: calls\n"
        b"from sglang.srt.x import y",
        id="an import above the only line",
    ),
]


@pytest.mark.parametrize(("edit", "before", "after"), WITHOUT_LAST_LINE_END)
def test_a_missing_final_line_end_is_added_before_new_lines(
    edit: Edit, before: bytes, after: bytes
) -> None:
    assert_bytes(edit, before, after)


LAND = Land("srt/agentcore/traces.py", "x = 1\ny = '\u00e9'\n", name="traces")


@pytest.mark.parametrize("text", ["", "x = 1\n"])
def test_a_module_lands_once_with_any_line_ends(text: str) -> None:
    land = replace(LAND, text=text)
    for there in (text.encode(), text.replace("\n", "\r\n").encode()):
        assert apply_edits(there, [land]) == (there, (False,))
    assert apply_edits(None, [land]) == (text.encode(), (True,))


@pytest.mark.parametrize("there", [b"", b"x = 1\n", b"x = 1\ny = '\xe9'\n"])
def test_a_module_does_not_land_on_another_file(there: bytes) -> None:
    assert_refused(LAND, there, "there is another file of that name")


@pytest.mark.parametrize("edit", [BEFORE, METHOD, IMPORT, FIELD])
def test_a_file_that_is_absent_cannot_be_edited(edit: Edit) -> None:
    with pytest.raises(SourceConflict) as refused:
        apply_edits(None, [edit])
    assert str(refused.value) == f"{FILE}: there is no such file"
