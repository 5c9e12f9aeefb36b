"""Shapes match the right statements."""

from __future__ import annotations

import pytest

from agentcore_patches.edits import Insert
from agentcore_patches.errors import SourceConflict
from tests.unit.edits.tables import FILE, assert_bytes, rewritten

BEFORE = Insert(FILE, "f", "log(data)", before="return data")

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
    ("f($X, $X)", "f(a.b, a . b)", True),
    ("f($X, $X)", "f(a, b)", False),
    ("f($X)", "f(*a)", False),
    ("f($X)", "f(a, b)", False),
    ("f($X)", "f(k=a)", False),
    ("f(K=$X)", "f(k=a)", False),
    ("f(K=$X)", "f(K=a)", True),
    ("f(X)", "f(a)", False),
    ("f(X)", "f(X)", True),
    ("x = X(...)", "x = f(a)", False),
    ("x = $X(...)", "x = f(a)", True),
    ('f(f"{$X} {$X}")', 'f(f"{a} {a}")', True),
    ('f(f"{$X} {$X}")', 'f(f"{a} {b}")', False),
    ("f(State.X)", "f(State.running)", False),
    ("f(State.X)", "f(State.X)", True),
    ("$X.f()", "a.b.f()", True),
    ("$X: int = 1", "a: int = 1", True),
    ("if a: ...", "if a:\n    b()\nelse:\n    c()", True),
    ("if a: ...", "if a: b()", True),
    ("if a: ...", "if (a):\n    b()\nelif c: pass", True),
    ("if a: ...", "if a and b:\n    c()", False),
    ("if a: b()", "if a: c()", False),
    ("return $X", "return", False),
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
def test_a_shape_matches_code_in_any_layout(
    shape: str, statement: str, matches: bool
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
    assert_bytes(BEFORE, source.encode(), expected.encode())
