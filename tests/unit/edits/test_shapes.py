"""Shapes match the right statements."""

from __future__ import annotations

import pytest

from agentcore_patches.edits import Insert
from agentcore_patches.errors import SourceConflict
from tests.unit.edits.tables import FILE, assert_bytes, rewritten

BEFORE = Insert(FILE, "f", "log(data)", before="return data")

SHAPES = [
    # (shape, whether it matches, statement)
    ('x = get("index", 0)', True, "x = get(\n    'index',\n    0,\n)  # it"),
    ('x = "it\'s"', True, "x = 'it\\'s'"),
    ('x = f"a {b}"', False, 'x = "a {b}"'),
    ("return a, b", True, "return (a, b,)"),
    ("x = f(...)", True, "x = f(1, *a, k=2, **b)"),
    ("x = f(..., 1)", False, "x = f(2, 2, 1)"),
    ("f($X, $X)", True, "f(a.b, a . b)"),
    ("f($X, $X)", False, "f(a, b)"),
    ("f($X)", False, "f(*a)"),
    ("f($X)", False, "f(a, b)"),
    ("f(K=$X)", False, "f(k=a)"),
    ("x = $X(...)", True, "x = f(a)"),
    ("f(State.X)", False, "f(State.running)"),
    ("$X.f()", True, "a.b.f()"),
    ("$X: int = 1", True, "a: int = 1"),
    ("if a: ...", True, "if (a):\n    b()\nelif c: pass"),
    ("if a: ...", False, "if a and b:\n    c()"),
    ("x = 1", False, "x = y = 1"),
    ("await f()", False, "f()"),
    ("for x in y: ...", False, "async for x in y: pass"),
    ("x = a == b", False, "x = a != b"),
    ("try: ...\nexcept A: ...", True, "try:\n    a\nexcept A:\n    b"),
    ("try: ...\nexcept A: ...", False, "try:\n    a\nfinally:\n    b"),
    ("@a\ndef f(): ...", False, "def f(): pass"),
]


@pytest.mark.parametrize(("shape", "matches", "statement"), SHAPES)
def test_a_shape_matches_code_in_any_layout(
    shape: str, matches: bool, statement: str
) -> None:
    body = "\n".join(f"    {line}" for line in statement.splitlines())
    source = f"async def f():\n    before()\n{body}\n    after()\n"
    edit = Insert(FILE, "f", "found()", before=shape)
    if matches:
        expected = source.replace("before()\n", "before()\n    found()\n")
        assert rewritten(source, edit) == expected
    else:
        with pytest.raises(SourceConflict, match="was not found"):
            rewritten(source, edit)


@pytest.mark.parametrize(
    "block",
    [
        "if x:\n    pass\nelif y:\n    return data",
        "with x:\n    return data",
        "try:\n    pass\nexcept E:\n    return data",
        "try:\n    pass\nfinally:\n    return data",
        "match x:\n    case 1:\n        pass\n    case 2:\n        return data",
        "def inner():\n    return data",
    ],
)
def test_an_anchor_is_found_in_every_kind_of_block(block: str) -> None:
    body = "".join(f"    {line}\n" for line in block.splitlines())
    source = f"def f(data):\n{body}"
    indented = next(line for line in body.splitlines() if "return" in line)
    new = indented.replace("return data", "log(data)")
    expected = source.replace(indented, f"{new}\n{indented}")
    assert_bytes(BEFORE, source.encode(), expected.encode())
