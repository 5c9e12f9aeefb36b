"""Captured expressions keep their text and meaning in new code."""

from __future__ import annotations

import pytest

from agentcore_patches.edits import (
    AddCondition,
    AddField,
    AddKeyword,
    AddMethod,
    Decorate,
    Insert,
    InvalidEdit,
    Replace,
    ScopedEdit,
)
from agentcore_patches.errors import SourceConflict
from tests.unit.edits.tables import FILE, assert_rewrites, rewritten

SUBSTITUTIONS = [
    # (shape, statement of the file, new code, the new code with the expressions)
    ("return $X", "return a + b", "y = 2 * $X", "y = 2 * (a + b)"),
    ("return $X", "return a * b", "y = 2 + $X", "y = 2 + a * b"),
    ("return $X", "return a - b", "y = c - $X", "y = c - (a - b)"),
    ("return $X", "return -a", "y = $X ** 2", "y = (-a) ** 2"),
    ("return $X", "return a or b", "y = not $X", "y = not (a or b)"),
    ("return $X", "return a < b", "y = $X < c", "y = (a < b) < c"),
    # Calls and other atoms need no parentheses.
    ("return $X", "return a.b(c)[0]", "y = -$X.d", "y = -a.b(c)[0].d"),
    ("return $X", "return 1", "y = $X.real", "y = (1).real"),
    # Conditional expressions, lambdas, await and yield.
    ("return $X", "return a if b else c", "y = $X or d", "y = (a if b else c) or d"),
    ("return $X", "return a if b else c", "y = g($X, k=$X)", "y = g(a if b else c, k=a if b else c)"),
    ("return $X", "return lambda: a", "y = $X or b", "y = (lambda: a) or b"),
    ("return $X", "return await a()", "y = $X.b", "y = (await a()).b"),
    ("y = $X", "y = yield a", "z = g(k=$X)", "z = g(k=(yield a))"),
    # Walrus, and tuples without parentheses.
    ("g($X)", "g(a := b)", "h(k=$X)", "h(k=(a := b))"),
    ("return $X", "return a, b", "g(k=$X)", "g(k=(a, b))"),
    ("return $X", "return a, b", "y = $X, c", "y = (a, b), c"),
    # Generator expressions, comprehensions, star arguments.
    ("g($X)", "g(a for a in b)", "h($X, c)", "h((a for a in b), c)"),
    ("return $X", "return a or b", "g(*$X, **$X)", "g(*a or b, **a or b)"),
    # Names in capitals, without a `$`, stand for themselves.
    ("g($X)", "g(a.b)", "h(X=$X)", "h(X=a.b)"),
    ("g($X)", "g(a.b)", "$X.X = 1", "a.b.X = 1"),
    # Inserted code is not searched again, and a name is a whole word.
    ("g($X, $Y)", "g(Y.a, X.b)", "h($X, $Y)", "h(Y.a, X.b)"),
    ("g($X)", "g(a)", "h(XX, X_X, $X)", "h(XX, X_X, a)"),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "statement", "new", "expected"), SUBSTITUTIONS)
def test_an_expression_keeps_its_meaning(
    shape: str, statement: str, new: str, expected: str
) -> None:
    edit = Insert(FILE, "f", new, before=shape)
    text = rewritten(f"async def f():\n    {statement}\n", edit)
    assert text.splitlines()[1].strip() == expected
    assert rewritten(text, edit) == text


@pytest.mark.parametrize("new", ["$X = 1", "g(a.$X)", "g($X=1)", "import $X"])
def test_an_expression_that_does_not_fit_its_place_is_refused(new: str) -> None:
    edit = Insert(FILE, "f", new, before="g($X)")
    reason = r"`\$X` stands for `a \+ b`, which the new code cannot take"
    with pytest.raises(SourceConflict, match=reason):
        rewritten("def f():\n    g(a + b)\n", edit)


UNBOUND = "`$Y` of the new code is not captured by a shape"
NOWHERE = "has a capture where no expression can stand"
NOT_HERE = "contains `$`, but captures are not allowed here"
MISUSED = [
    (Insert(FILE, "f", "g($Y)", before="g($X)"), UNBOUND),
    (Replace(FILE, "f", "g($X)", "h($Y)"), UNBOUND),
    (Insert(FILE, "f", "g('$X')", before="g($X)"), NOWHERE),
    (Insert(FILE, "f", "g()  # $X", before="g($X)"), NOWHERE),
    (AddCondition(FILE, "f", "if $X: ...", "$X"), NOT_HERE),
    (AddKeyword(FILE, "f", "g", "a=$X"), NOT_HERE),
    (AddField(FILE, "A", "a: $X = 0"), NOT_HERE),
    (AddMethod(FILE, "A", "def f(self):\n    return '$X'"), NOT_HERE),
    (Decorate(FILE, "f", "$X"), NOT_HERE),
]


@pytest.mark.parametrize(("edit", "reason"), MISUSED)
def test_an_unbound_or_unused_capture_is_an_author_error(
    edit: ScopedEdit, reason: str
) -> None:
    with pytest.raises(InvalidEdit) as refused:
        edit.check()
    assert str(refused.value).endswith(reason)


def test_an_expression_of_many_lines_keeps_its_layout() -> None:
    before = "    return g(\n        a\n        + b\n    )\n"
    assert_rewrites(
        Insert(FILE, "f", "if c:\n    y = $X", before="return g($X)"),
        f"def f(a, b):\n{before}",
        f"def f(a, b):\n    if c:\n        y = (a\n            + b)\n{before}",
    )
