"""Statements that no edit needs are not parsed, and the result is the same."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from agentcore_patches.edits import (
    AddCondition,
    AddField,
    AddKeyword,
    AddParameter,
    Decorate,
    Edit,
    Expect,
    Insert,
    RefuseField,
    Replace,
    apply_edits,
    source,
)
from agentcore_patches.edits.unneeded import unneeded
from agentcore_patches.errors import SourceConflict
from tests.unit.edits.tables import FILE

SOURCE = dedent(
    '''
    class C(Base):
        """Of the class."""

        x: int  # the first
        y: str = "a"; z = 1
        w: list = None

        @decorated(call(1))
        def f(self, data):
            """Of the function."""
            if data:
                a = 1
                # of the block
            elif self.b(): c = 2
            else:
                for i in self:
                    d = i; e = [
                        d]
            try:
                g = h(
                    data,
                )
                call(g)  # of the call
            except E as error: raise
            finally:
                k = """
    text
    """
              # below
            while data:
                data.pop()
            BLANK
            last = lambda: call(data)
            match data:
                case [one]:
                    two = one
                case _:
                    pass
            with m: pass
            def inner():
                v: int = 0
                return data
                # of it

            return inner

        async def o(self): return await self.p()

        if TYPE_CHECKING:
            def q(self): ...
    '''
).replace("BLANK", " " * 8)


SHAPES = {
    f"{ast.unparse(node).splitlines()[0]} ..."
    if isinstance(node, ast.If | ast.For | ast.While | ast.With)
    else ast.unparse(node): None
    for node in ast.walk(ast.parse(SOURCE))
    if isinstance(node, ast.stmt) and not isinstance(node, ast.ClassDef)
}
"""A shape for each statement of the source, with any block in it."""

EDITS: list[Edit] = [
    *(Insert(FILE, "C", "log(x)", before=shape) for shape in SHAPES),
    *(Insert(FILE, "C", "log(x)", after=shape) for shape in SHAPES),
    *(Insert(FILE, scope, "log(x)") for scope in ("C.f", "C.f.inner", "C.o")),
    Insert(FILE, "C.f", "a = 1\nb = 2", after="if data: ..."),
    Insert(FILE, "C.f", "log(x)", before="while data:\n    ...\n    data.pop()"),
    Insert(FILE, "C.f", "log(x)", after="$X = i"),
    Replace(FILE, "C.f", "return $X", "return log($X)"),
    Replace(FILE, "C.f", "c = 2", "log()"),
    Replace(FILE, "C.f", "g = h(...)", "call(g)"),
    AddCondition(FILE, "C.f", "if data: ...", "self"),
    AddKeyword(FILE, "C", "h", "x=1"),
    AddParameter(FILE, "C.f.inner", "x=1"),
    Decorate(FILE, "C.f.inner", "traced"),
    AddField(FILE, "C", "v: int = 0"),
    AddField(FILE, "C", "x: str"),
    RefuseField(FILE, "C", ("y", "v")),
    Expect(FILE, "C", "two = $X"),
]


def outcome(*edits: Edit) -> object:
    """Return the new text and the changes, or the reason for a refusal."""
    try:
        return apply_edits(SOURCE.encode(), edits)
    except SourceConflict as conflict:
        return str(conflict)


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.describe())
def test_an_edit_has_the_same_result_as_on_the_full_definition(
    edit: Edit, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = Decorate(FILE, "C.f", "traced"), AddField(FILE, "C", "t: int = 0")
    outcomes = outcome(edit), outcome(edit, *others)
    monkeypatch.setattr(source, "unneeded", lambda *_: [])
    assert (outcome(edit), outcome(edit, *others)) == outcomes


def test_most_of_a_definition_is_left_out() -> None:
    [definition] = ast.parse(SOURCE).body
    lines = SOURCE.splitlines(keepends=True)
    edit = Insert(FILE, "C.f", "log(x)", after="two = $X")
    for start, end in reversed(unneeded(definition, lines, "C", [edit])):
        lines[start:end] = [""]
    kept = {line.strip() for line in lines}
    assert {"def f(self, data):", "two = one", '"""Of the function."""'} <= kept
    assert not kept & {"x: int  # the first", "return inner"}
