"""Captured expressions keep their text and meaning in new code."""

from __future__ import annotations

import ast

import pytest

from agentcore_patches.edits import (
    AddCondition,
    AddField,
    AddKeyword,
    AddMethod,
    AddParameter,
    Decorate,
    Expect,
    Insert,
    InvalidEdit,
    Replace,
    ScopedEdit,
    apply_edits,
)
from agentcore_patches.errors import SourceConflict
from tests.unit.edits.tables import FILE, assert_rewrites, rewritten

SUBSTITUTIONS = [
    # (shape, statement of the file, new code, what must come out)
    ("return $X", "return a + b", "y = 2 * $X", "y = 2 * (a + b)"),
    ("return $X", "return a + b", "y = $X * 2", "y = (a + b) * 2"),
    ("return $X", "return a * b", "y = 2 + $X", "y = 2 + a * b"),
    ("return $X", "return a + b", "y = $X + c", "y = a + b + c"),
    ("return $X", "return a + b", "y = c + $X", "y = c + (a + b)"),
    ("return $X", "return a - b", "y = c - $X", "y = c - (a - b)"),
    ("return $X", "return -a", "y = $X ** 2", "y = (-a) ** 2"),
    ("return $X", "return a ** b", "y = -$X", "y = -a ** b"),
    ("return $X", "return a or b", "y = not $X", "y = not (a or b)"),
    ("return $X", "return a or b", "y = $X and c", "y = (a or b) and c"),
    ("return $X", "return a and b", "y = $X or c", "y = a and b or c"),
    ("return $X", "return a or b", "y = $X or c", "y = a or b or c"),
    ("return $X", "return not a", "y = $X and b", "y = not a and b"),
    ("return $X", "return not a", "y = $X == b", "y = (not a) == b"),
    ("return $X", "return a < b", "y = $X < c", "y = (a < b) < c"),
    ("return $X", "return a < b", "y = not $X", "y = not a < b"),
    # Calls and other atoms need no parentheses.
    ("return $X", "return a.b(c)[0]", "y = -$X.d", "y = -a.b(c)[0].d"),
    ("return $X", "return [a, b]", "y = $X[0]", "y = [a, b][0]"),
    ("return $X", "return (a + b)", "y = 2 * $X", "y = 2 * (a + b)"),
    ("return $X", "return a + b", "y = ($X)", "y = (a + b)"),
    ("return $X", "return 1", "y = $X.real", "y = (1).real"),
    ("return $X", "return 'a' 'b'", "y = $X.lower()", "y = 'a' 'b'.lower()"),
    # Conditional expressions and lambdas.
    ("return $X", "return a if b else c", "y = $X[0]", "y = (a if b else c)[0]"),
    ("return $X", "return a if b else c", "y = $X or d", "y = (a if b else c) or d"),
    ("return $X", "return a if b else c", "y = g($X, k=$X)", None),
    ("return $X", "return a if b else c", "y = d if $X else e", None),
    ("return $X", "return lambda: a", "y = $X or b", "y = (lambda: a) or b"),
    ("return $X", "return lambda: a", "y = g($X)", "y = g(lambda: a)"),
    ("return $X", "return a or b", "y = lambda: $X", "y = lambda: a or b"),
    # Await and yield.
    ("return $X", "return await a()", "y = $X.b", "y = (await a()).b"),
    ("return $X", "return await a()", "y = $X + 1", "y = await a() + 1"),
    ("return $X", "return a or b", "y = await $X", "y = await (a or b)"),
    ("y = $X", "y = yield a", "z = $X", "z = yield a"),
    ("y = $X", "y = yield a", "z = g($X)", "z = g((yield a))"),
    ("y = $X", "y = yield a", "z = g(k=$X)", "z = g(k=(yield a))"),
    # Walrus.
    ("g($X)", "g(a := b)", "h($X)", "h(a := b)"),
    ("g($X)", "g(a := b)", "h(k=$X)", "h(k=(a := b))"),
    ("g($X)", "g(a := b)", "y = $X", "y = (a := b)"),
    ("g($X)", "g(a := b)", "y = $X + 1", "y = (a := b) + 1"),
    # Tuples without parentheses.
    ("return $X", "return a, b", "y = $X", "y = a, b"),
    ("return $X", "return a, b", "g($X)", "g((a, b))"),
    ("return $X", "return a, b", "g(k=$X)", "g(k=(a, b))"),
    ("return $X", "return a, b", "y = $X, c", "y = (a, b), c"),
    ("return $X", "return a, b", "y = $X[0]", "y = (a, b)[0]"),
    ("return $X", "return a, b", "y = $X + c", "y = (a, b) + c"),
    ("return $X", "return a,", "y = g($X)", "y = g((a,))"),
    ("return $X", "return a, b", "for y in $X: pass", "for y in a, b: pass"),
    ("return $X", "return a, b", "y = [z for z in $X]", "y = [z for z in (a, b)]"),
    # Generator expressions and comprehensions.
    ("g($X)", "g(a for a in b)", "h($X)", "h(a for a in b)"),
    ("g($X)", "g(a for a in b)", "h($X, c)", "h((a for a in b), c)"),
    ("g($X)", "g(a for a in b)", "h(k=$X)", "h(k=(a for a in b))"),
    ("g($X)", "g(a for a in b)", "y = $X", "y = (a for a in b)"),
    ("return $X", "return [a for a in b]", "y = $X[0]", "y = [a for a in b][0]"),
    ("return $X", "return a or b", "y = [$X for c in d]", "y = [a or b for c in d]"),
    ("return $X", "return a if b else c", "y = [d for d in $X]", None),
    ("return $X", "return a if b else c", "y = [d for d in e if $X]", None),
    # Star arguments.
    ("return $X", "return a or b", "g(*$X, **$X)", "g(*a or b, **a or b)"),
    ("return $X", "return a, b", "g(*$X)", "g(*(a, b))"),
    ("return $X", "return a or b", "y = [*$X]", "y = [*(a or b)]"),
    ("return $X", "return a or b", "y = {**$X}", "y = {**(a or b)}"),
    # In f-strings.
    ("return $X", "return a + b", "y = f'{$X}'", "y = f'{a + b}'"),
    ("return $X", "return a, b", "y = f'{$X!r}'", "y = f'{a, b!r}'"),
    ("return $X", "return a != b", "y = f'{$X!r:>{$X}}'", "y = f'{a != b!r:>{a != b}}'"),
    ("return $X", "return a if b else c", "y = f'{d:{$X}}'", None),
    ("return $X", "return lambda: a", "y = f'{$X}'", "y = f'{(lambda: a)}'"),
    ("return $X", "return {a: b}", "y = f'{$X}'", "y = f'{({a: b})}'"),
    ("g($X)", "g(a := b)", "y = f'{$X}'", "y = f'{(a := b)}'"),
    ("return $X", "return a['b']", 'y = f"{$X}"', "y = f\"{a['b']}\""),
    ("return $X", "return a['b']", "y = f'''{$X}'''", "y = f'''{a['b']}'''"),
    ("return f'a{$X}'", "return f'a{b + c}'", "y = 2 * $X", "y = 2 * (b + c)"),
    # Names in capitals, without a `$`, stand for themselves.
    ("return $X", "return a", "y = X, $X", "y = X, a"),
    ("g(X, $X)", "g(X, a)", "h(X, $X)", "h(X, a)"),
    ("g($X)", "g(a.b)", "h(X=$X)", "h(X=a.b)"),
    ("g($X)", "g(a.b)", "$X.X = 1", "a.b.X = 1"),
    ("g($X)", "g(a)", "y = lambda X: $X", "y = lambda X: a"),
    ("g($X)", "g(a)", "y = 'X', $X  # X", "y = 'X', a  # X"),
    # Inserted code is not searched again, and a name is a whole word.
    ("g($X, $Y)", "g(Y.a, X.b)", "h($X, $Y)", "h(Y.a, X.b)"),
    ("g($X, $Y)", "g(Y, X)", "h($X + $Y)", "h(Y + X)"),
    ("g($X)", "g(a)", "h(XX, X_X, $X)", "h(XX, X_X, a)"),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "statement", "new", "expected"), SUBSTITUTIONS)
def test_an_expression_keeps_its_meaning(
    shape: str, statement: str, new: str, expected: str | None
) -> None:
    source = f"async def f():\n    {statement}\n"
    edit = Insert(FILE, "f", new, before=shape)
    text = rewritten(source, edit)
    lines = text.splitlines()
    made, meant = lines[1].strip(), _substituted(shape, statement, new)
    assert _same(made, meant)
    if expected is not None:
        assert made == expected
    assert rewritten(text, edit) == text


def _substituted(shape: str, statement: str, new: str) -> ast.AST:
    """Insert captures into the new code by `ast`, which has no parentheses."""
    shape, new = (code.replace("$", "capture_") for code in (shape, new))
    captured: dict[str, ast.expr] = {}

    def capture(one: object, other: object) -> None:
        match one, other:
            case ast.Name(id=name), ast.expr() if name.startswith("capture_"):
                captured[name] = other
            case ast.AST(), ast.AST():
                for field in one._fields:
                    capture(getattr(one, field), getattr(other, field))
            case [*ones], [*others]:
                for left, right in zip(ones, others, strict=True):
                    capture(left, right)

    class Put(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return captured.get(node.id, node)

    capture(ast.parse(shape).body[0], ast.parse(statement).body[0])
    assert captured
    return Put().visit(ast.parse(new))  # type: ignore[no-any-return]


def _same(made: str, meant: ast.AST) -> bool:
    return ast.dump(_flat(ast.parse(made))) == ast.dump(_flat(meant))


def _flat(tree: ast.AST) -> ast.AST:
    """Normalize `(a or b) or c` to `a or b or c`, and stores to loads."""

    class Flat(ast.NodeTransformer):
        def visit_BoolOp(self, node: ast.BoolOp) -> ast.BoolOp:
            self.generic_visit(node)
            values: list[ast.expr] = []
            for value in node.values:
                inner = isinstance(value, ast.BoolOp) and value.op == node.op
                values += value.values if inner else [value]  # type: ignore[attr-defined]
            return ast.BoolOp(node.op, values)

        def generic_visit(self, node: ast.AST) -> ast.AST:
            if hasattr(node, "ctx"):
                node.ctx = ast.Load()
            return super().generic_visit(node)

    return Flat().visit(tree)  # type: ignore[no-any-return]


def test_an_expression_that_does_not_fit_its_place_is_refused() -> None:
    edit = Insert(FILE, "f", "$X = 1", before="g($X)")
    with pytest.raises(SourceConflict) as refused:
        rewritten("def f():\n    g(a + b)\n", edit)
    assert "`$X` stands for `a + b`, which the new code cannot take" in str(
        refused.value
    )


@pytest.mark.parametrize(
    "captured",
    ["a['b']", "a[f'{b}']", 'a["\\n"]', 'a["#"]', "(\n        a\n    )"],
    ids=["quotes", "quotes in quotes", "backslash", "hash", "lines"],
)
def test_an_f_string_of_python_before_3_12_cannot_take_every_expression(
    captured: str,
) -> None:
    edit = Replace(FILE, "f", "yield $X", "log(f'{$X!r}')")
    edit.check()
    with pytest.raises(SourceConflict, match="cannot take in its place"):
        rewritten(f"def f():\n    yield {captured}\n", edit)


def test_a_replacement_keeps_captures_inside_f_strings() -> None:
    edit = Replace(FILE, "f", "yield $X", 'log(f"{$X!r}")')
    assert_rewrites(
        edit, "def f():\n    yield a, b\n", 'def f():\n    log(f"{a, b!r}")\n'
    )


UNBOUND = "`$Y` of the new code is not captured by a shape"
NOWHERE = "has a capture where no expression can stand"
NOT_HERE = "contains `$`, but captures are not allowed here"
MISUSED = [
    (Insert(FILE, "f", "g($Y)", before="g($X)"), UNBOUND),
    (Insert(FILE, "f", "g(f'{$Y}')", after="g($X)"), UNBOUND),
    (Insert(FILE, "f", "g($Y)"), UNBOUND),
    (Replace(FILE, "f", "g($X)", "h($Y)"), UNBOUND),
    (Insert(FILE, "f", "g(a.$X)", before="g($X)"), NOWHERE),
    (Insert(FILE, "f", "g($X=a)", before="g($X)"), NOWHERE),
    (Insert(FILE, "f", "g(lambda $X: a)", before="g($X)"), NOWHERE),
    (Insert(FILE, "f", "g('$X')", before="g($X)"), NOWHERE),
    (Insert(FILE, "f", "g()  # $X", before="g($X)"), NOWHERE),
    (Insert(FILE, "f", "g($X)", before="g('$X')"), NOWHERE),
    (Replace(FILE, "f", "g(a.$X)", "h()"), NOWHERE),
    (Expect(FILE, "f", "g(a.$X)"), NOWHERE),
    (AddCondition(FILE, "f", "if a.$X: ...", "b"), NOWHERE),
    (AddCondition(FILE, "f", "if $X: ...", "$X"), NOT_HERE),
    (AddKeyword(FILE, "f", "g", "a=$X"), NOT_HERE),
    (AddKeyword(FILE, "f", "$X", "a=b"), NOT_HERE),
    (AddParameter(FILE, "f", "a=$X"), NOT_HERE),
    (AddField(FILE, "A", "a: $X = 0"), NOT_HERE),
    (AddField(FILE, "A", "a: int = 0", native="a: $X = 0"), NOT_HERE),
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


def test_a_name_in_capitals_is_not_a_capture() -> None:
    edit = Insert(FILE, "f", "g()", before="self.to_finish = FINISH_ABORT(...)")
    source = "def f(self):\n    self.to_finish = FINISH_ABORT('why')\n"
    assert rewritten(source, edit).startswith("def f(self):\n    g()\n")
    with pytest.raises(SourceConflict, match="was not found"):
        rewritten(source.replace("FINISH_ABORT", "SOMETHING_ELSE"), edit)


def test_new_code_may_use_names_in_capitals() -> None:
    source = "def f(data):\n    log(other)\n    return data\n"
    edit = Insert(FILE, "f", "log(NAME)", before="return data")
    expected = "def f(data):\n    log(other)\n    log(NAME)\n    return data\n"
    assert rewritten(source, edit) == expected


def test_an_expression_of_many_lines_keeps_its_layout() -> None:
    assert_rewrites(
        Insert(FILE, "f", "if c:\n    y = $X", before="return g($X)"),
        """
        def f(a, b):
            return g(
                a
                + b
            )
        """,
        """
        def f(a, b):
            if c:
                y = (a
                    + b)
            return g(
                a
                + b
            )
        """,
    )


def test_a_condition_that_is_added_keeps_its_meaning() -> None:
    source = b"def f(a, b):\n    if (c := a) or b:\n        pass\n"
    edit = AddCondition(FILE, "f", "if ... or b: ...", "d if a else b")
    new, _ = apply_edits(source, [edit])
    assert b"    if ((c := a) or b) and (d if a else b):\n" in new
    assert apply_edits(new, [edit]) == (new, (False,))
