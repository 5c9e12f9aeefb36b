"""Whole files: many definitions at once, encodings, line ends, unreadable files."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from textwrap import indent

import pytest

from agentcore_patches.edits import (
    AddField,
    AddMethod,
    Import,
    Insert,
    InvalidEdit,
    Land,
    apply_edits,
)
from agentcore_patches.edits.unneeded import unneeded
from agentcore_patches.errors import SourceConflict
from tests.unit.edits.tables import (
    FILE,
    assert_bytes,
    assert_refused,
    rewritten,
)

FIELD = AddField(FILE, "Answer", "ids: Optional[List[int]] = None")
BEFORE = Insert(FILE, "f", "log(data)", before="return data")
METHOD = AddMethod(FILE, "Answer", "def method(self):\n    return self", note="itself")
IMPORT = Import(FILE, "sglang.srt", "agentcore", note="calls")


def test_a_member_is_searched_for_in_a_class_that_changes_too() -> None:
    edit = Insert(FILE, "Answer.f", "log(data)", before="return data")
    for members, found in (("g = 1", "not defined"), ("def f(): ...\n" * 2, "2 times")):
        source = "class Answer:\n    text: str\n" + indent(members, "    ")
        with pytest.raises(
            SourceConflict, match=f"in `Answer.f`, .*: `f` is .*{found}"
        ):
            rewritten(source, FIELD, edit)


def test_a_method_of_an_inner_class_is_refused_beside_edits_around_it() -> None:
    source = b"class Answer:\n    class Inner:\n        n: int\n\n    text: str\n"
    inner = AddMethod(FILE, "Answer.Inner", "def method(self): ...")
    with pytest.raises(InvalidEdit, match="a method is for a class in a definition"):
        apply_edits(source, [inner, FIELD])


BYTES = {
    "a coding cookie": b"# -*- coding: latin-1 -*-\nname = '\xe9'\n"
    b"def f(data):\n<    log(data)\n>    return data # \xe9",
    "a byte order mark": b"\xef\xbb\xbfdef f(data):\n<    log(data)\n>    return data\n",
    "line separators that Python does not count": (
        "x = 'a\u2028b\x85c\x1cd\x0be'\n"
        "def f(data):\n    y = '\u2029'\n<    log(data)\n>    return data\n"
    ).encode(),
    "a form feed inside": b"def f(data):\n    x = 1\n<    log(data)\n>\x0c\n    return data\n",
    "mixed line ends": b"x = 1\r\n"
    b"def f(data):\r\n    y = 2\n<    log(data)\r\n>    return data\r\n\nz = 3\n",
    "tabs": b"def f(data):\n\tif data:\n<\t\tlog(data)\n>\t\treturn data\n",
    "code in a string, and trailing blanks": b'x = """\ndef f(data):\n    return data\n"""\n'
    b"def f(data):\n<    log(data)\n>    return data   \n \t \n",
    "semicolons": b"a = 1; b = 2\n"
    b"def f(data):\n    c = 3; d = 4;\n<    log(data)\n>    return data;\n",
    "backslashes": b"def f(data):\n    x = 1 + \\\n        2\n"
    b"<    log(data)\n>    return \\\n        data\n",
    "comments at any depth": b"def f(data):\n# left\n    x = 1\n"
    b"<    log(data)\n>  # odd\n    # right\n    return data\n# end\n",
}
"""Sources with an inserted line in angle brackets."""


@pytest.mark.parametrize("marked", BYTES.values(), ids=BYTES)
def test_every_other_byte_is_kept(marked: bytes) -> None:
    before = re.sub(rb"<[^>]*>", b"", marked)
    assert_bytes(BEFORE, before, marked.replace(b"<", b"").replace(b">", b""))


BINDINGS = [
    "import agentcore.x",
    "from sglang.srt import agentcore\ndef agentcore(): pass",
    "if TYPE_CHECKING:\n    from sglang.srt import agentcore",
    "try: pass\nexcept E as agentcore: pass",
    "match os:\n    case {'a': [*agentcore], **rest}: pass",
    "print(1 if (agentcore := 2) else 3)",
]


@pytest.mark.parametrize("binding", BINDINGS)
def test_an_import_of_a_name_that_the_file_binds_is_refused(binding: str) -> None:
    source = f"import os\nfrom sglang.srt.x import y\n{binding}\n".encode()
    assert_refused(IMPORT, source, "there is another `agentcore`")


UNPARSED = "cannot be parsed as Python"
LINE_ENDS = "it has form feeds, or carriage returns as line ends"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (b"", "`f` is not defined"),
        (b"def f(data:\n", UNPARSED),
        (b"x = '\xff'\n", "cannot be decoded"),
        (b"# coding: nonsense\n", "cannot be decoded"),
        pytest.param(b"x = " + b"(" * 9999, UNPARSED, id="parentheses"),
        (b"\x0cdef f(data):\n    return data\n", LINE_ENDS),
        (b"def f(data):\r    return data\rx = 1\r", LINE_ENDS),
        (None, "there is no such file"),
    ],
)
def test_an_unreadable_file_is_refused(source: bytes | None, words: str) -> None:
    with pytest.raises(SourceConflict) as refused:
        apply_edits(source, [BEFORE])
    assert words in str(refused.value)
    assert FILE in str(refused.value)


LAND = Land("srt/agentcore/traces.py", "x = 1\ny = '\u00e9'\n", name="traces")


@pytest.mark.parametrize("text", ["", "x = 1\n"])
def test_a_module_lands_once_with_any_line_ends(text: str) -> None:
    land = replace(LAND, text=text)
    for there in (text.encode(), text.replace("\n", "\r\n").encode()):
        assert apply_edits(there, [land]) == (there, (False,))
    assert apply_edits(None, [land]) == (text.encode(), (True,))


def test_a_module_does_not_land_on_another_file() -> None:
    assert_refused(LAND, b"x = 1\n", "there is another file of that name")


def test_statements_that_no_edit_needs_are_not_parsed() -> None:
    source = (
        "class C:\n"
        "    x: int  # the first\n"
        "    y: int\n"
        "    def f(self, data):\n"
        "        a = 1\n"
        "        return data\n"
        "    def g(self): ...\n"
    )
    [definition] = ast.parse(source).body
    lines = source.splitlines(keepends=True)
    edit = Insert(FILE, "C.f", "log(data)", before="return data")
    # New fields would come after the last one.
    assert unneeded(definition, lines, "C", [edit]) == [(1, 2), (4, 5), (6, 7)]
