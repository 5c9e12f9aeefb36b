"""The text of a file, and of a definition in it, while edits change it.

The file is parsed once. A definition is parsed again for each edit, with the changes of
the edits before, so that only lines with a change are ever written.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from textwrap import indent
from typing import TypeAlias

from agentcore_patches.edits.matching import (
    DEFINITIONS,
    Block,
    CannotPlace,
    Captures,
    Definition,
    blocks,
    capture_names,
    captures_of,
    expect_one,
    expect_one_definition,
    find,
    headline,
    matches,
    parse_shape,
    spelled,
)
from agentcore_patches.errors import SourceConflict

Located: TypeAlias = ast.expr | ast.stmt | ast.arg | ast.keyword


@lru_cache(maxsize=64)
def parse(text: str, file: str) -> ast.Module:
    """Parse a file, or raise SourceConflict. The result is cached: do not modify it."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise SourceConflict(f"{file} cannot be parsed as Python: {error}") from error


def first_line(node: ast.stmt) -> int:
    """Return the first line of a statement, with its decorators, counted from 0."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)]) - 1


def end_line(node: ast.stmt) -> int:
    """Return the line after the last one of a statement."""
    assert node.end_lineno is not None
    return node.end_lineno


class SourceFile:
    """A file: its lines as they are now, and its tree as it was at first."""

    def __init__(self, text: str, file: str) -> None:
        self.tree = parse(text, file)
        self.lines = list(io.StringIO(text, newline=""))
        first = self.lines[0] if self.lines else "\n"
        self.newline = "\r\n" if first.endswith("\r\n") else "\n"
        # The present line of each line of the tree.
        self._present = list(range(len(self.lines) + 1))

    def place(self, scope: str) -> Place:
        """Return a definition, as it is now."""
        node = self.definition(scope)
        start, end = self._present[first_line(node)], self._present[end_line(node)]
        return Place(self, start, self.lines[start:end])

    def definition(self, scope: str) -> Definition:
        """Return a definition, as it was at first."""
        *outer, name = scope.split(".")
        found = definitions(self.body(outer), name)
        expect_one_definition(name, len(found))
        return found[0]

    def body(self, scope: Sequence[str]) -> Block:
        return self.definition(".".join(scope)).body if scope else self.tree.body

    def splice(self, start: int, end: int, new: str, *, grows: bool = False) -> None:
        """Replace present lines.

        `grows`: lines that are inserted belong to what begins there, not to what ends.
        """
        before = len(self.lines)
        if start == before and not self.lines[-1].endswith(("\n", "\r")):
            self.lines[-1] += self.newline
            new = new.removesuffix(self.newline)
        self.lines[start:end] = io.StringIO(new, newline="")
        moved = len(self.lines) - before
        self._present = [
            line + moved if line >= end + grows else line for line in self._present
        ]


def definitions(body: Block, name: str) -> list[Definition]:
    return [n for n in body if isinstance(n, DEFINITIONS) and n.name == name]


class Place:
    """A definition, as it is now."""

    def __init__(self, source: SourceFile, start: int, lines: Sequence[str]) -> None:
        is_inner = lines[0].startswith((" ", "\t"))
        if is_inner:
            # So that Python can parse it alone.
            lines, start = ["if True:\n", *lines], start - 1
        self._source = source
        self._start = start
        self._lines = lines
        self._offsets = [0, *accumulate(map(len, lines))]
        self._text = "".join(lines)
        try:
            node = ast.parse(self._text).body[0]
        except SyntaxError as error:
            raise CannotPlace(f"the edits before it broke it: {error}") from error
        if is_inner:
            assert isinstance(node, ast.If)
            node = node.body[0]
        assert isinstance(node, Definition)
        self.node: Definition = node

    def find(self, shape: ast.stmt) -> list[tuple[Block, int, Captures]]:
        """Return every statement of a shape that has lines of its own, in order."""
        found = find(self.node, shape)
        return [one for one in found if self.is_apart(one[0][one[1]])]

    def find_one(self, shape: str) -> tuple[Block, int, Captures]:
        found = self.find(parse_shape(shape))
        expect_one(len(found), f"`{headline(shape)}`")
        return found[0]

    def is_apart(self, statement: ast.stmt) -> bool:
        """True if a statement shares its lines with no other code."""
        start, end = self.span(statement)
        before = self._text[self._offsets[statement.lineno - 1] : start]
        behind = self._text[end : self._offsets[end_line(statement)]]
        return (
            not before.strip()
            and not self._text.startswith("elif", start)
            and behind.strip().removeprefix(";").lstrip()[:1] in ("", "#")
        )

    def margin(self, node: ast.stmt | ast.expr) -> str:
        """Return the indentation of a node's first line."""
        line = self._lines[node.lineno - 1]
        return line.removesuffix(line.lstrip())

    def above(self, block: Block, index: int) -> int:
        """Return the line of new code before a statement, above its comments."""
        if index:
            return self.below(block[index - 1])
        line = first_line(block[0])
        while self._lines[line - 1].strip()[:1] in ("", "#"):
            line -= 1
        return line

    def below(self, statement: ast.stmt) -> int:
        """Return the line below a statement, and below comments in its last block."""
        line = end_line(statement)
        if any(blocks(statement)):
            margin = self.margin(statement)
            for number, text in enumerate(self._lines[line:], line + 1):
                if text.strip()[:1] not in ("", "#"):
                    break
                if text.strip() and text.removeprefix(margin)[:1].isspace():
                    line = number
        return line

    def insert(
        self, line: int, beside: ast.stmt, *new: str, grows: bool = False
    ) -> None:
        """Insert code above a line, indented as a statement beside it."""
        if not self.is_apart(beside):
            raise CannotPlace("its body is on the line of its header")
        at = self._start + line
        code = _indented("\n".join([*new, ""]), self.margin(beside))
        code = code.replace("\n", self._source.newline)
        self._source.splice(at, at, code, grows=grows)

    def replace(self, statement: ast.stmt, new: str, comment: Sequence[str]) -> None:
        """Replace a statement; comments on its lines, and above it, stay."""
        start, end = self.span(statement)
        margin = self.margin(statement)
        code = _indented("\n".join([*comment, new]), margin)
        self.rewrite((start, end, code.removeprefix(margin)))

    def rewrite(self, *changes: tuple[int, int, str]) -> None:
        """Replace parts of the text, each from its start to its end."""
        first = bisect_right(self._offsets, min(start for start, _, _ in changes)) - 1
        last = bisect_right(self._offsets[:-1], max(end for _, end, _ in changes)) - 1
        low = self._offsets[first]
        text = "".join(self._lines[first : last + 1])
        for start, end, new in reversed(changes):
            new = new.replace("\n", self._source.newline)
            text = text[: start - low] + new + text[end - low :]
        self._source.splice(self._start + first, self._start + last + 1, text)

    def text(self, start: int, end: int) -> str:
        return self._text[start:end]

    def text_of(self, node: Located) -> str:
        return self.text(*self.span(node))

    def span(self, node: Located) -> tuple[int, int]:
        """Return where the text of a node starts and ends."""
        assert node.end_lineno is not None and node.end_col_offset is not None
        return (
            self._offset(node.lineno, node.col_offset),
            self._offset(node.end_lineno, node.end_col_offset),
        )

    def _offset(self, line: int, column: int) -> int:
        before = self._lines[line - 1].encode()[:column].decode()
        return self._offsets[line - 1] + len(before)

    def colon_of(self, statement: ast.If) -> int:
        """Return the place of the colon behind the test of an `if`."""
        _, end = self.span(statement.test)
        found = re.compile(r"(?:[)\s\\]|#.*)*").match(self._text, end)
        assert found
        return found.end()

    def append(
        self, owner: ast.Call | Definition, new: str, comment: Sequence[str]
    ) -> None:
        """Add an item to a call's arguments or a function's parameters, in their layout.

        It goes before what is unpacked. Comments stay with the item that they follow; the
        new item's comment is above it, unless it is first.
        """
        opening, items, closing = self._items(owner)
        margin = self.margin(owner)
        only_unpacked = isinstance(owner, ast.Call) and len(items) == 1
        if items and self._text.startswith("**", items[-1][0]) and not only_unpacked:
            closing = items.pop()[0]
        if not items:
            separator = "" if self._text.startswith(")", closing) else ", "
            self.rewrite((opening, opening, new + separator))
            return
        changes: list[tuple[int, int, str]] = []
        *most, (start, end, comma) = items
        match owner:
            case ast.Call(args=[ast.GeneratorExp() as only], keywords=[]):
                if self.span(only)[0] < start:
                    changes = [(start, start, "("), (end, end, ")")]
        tail = self._text[comma:closing]
        trailing = comma > end
        gap = self._text[most[-1][2] : start] if most else ""
        if not most and trailing and "\n" in tail:
            gap = self._text[opening:start]
        at, between = comma, " "
        if "\n" in gap:
            between = "\n" + gap.rpartition("\n")[2]
            if "\n" in tail:
                at += len(tail.rpartition("\n")[0].removesuffix("\r"))
        elif comment:
            between = f"\n{margin}    "
        inner = between if "\n" in between else f"\n{margin}    "
        added = inner.join([*comment, new.replace("\n", inner)])
        if not trailing:
            changes.append((end, end, ","))
        changes.append((at, at, between + added + "," * trailing))
        self.rewrite(*changes)

    def _items(
        self, owner: ast.Call | Definition
    ) -> tuple[int, list[tuple[int, int, int]], int]:
        """Return the text inside parentheses: its start, its items, its end.

        An item has a start, an end, and the end of the comma behind it, if there is one.
        """
        start = self.span(owner)[0]
        if isinstance(owner, ast.Call):
            _, start = self.span(owner.func)
        first = bisect_right(self._offsets, start) - 1
        text = io.StringIO(self._text[start:], newline="")
        depth, opening, is_new = 0, 0, True
        items: list[tuple[int, int, int]] = []
        for token in tokenize.generate_tokens(text.readline):
            begin, end = (
                column + (self._offsets[first + row - 1] if row > 1 else start)
                for row, column in (token.start, token.end)
            )
            if token.type in (tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT):
                continue
            if depth and token.string in (")", "]", "}"):
                depth -= 1
                if not depth:
                    return opening, items, begin
            elif token.string in ("(", "[", "{"):
                depth += 1
                if depth == 1:
                    opening = end
                    continue
            if depth == 1 and token.string == ",":
                items[-1] = (*items[-1][:2], end)
                is_new = True
            elif depth:
                items.append((begin if is_new else items.pop()[0], end, end))
                is_new = False
        raise AssertionError("every call ends")

    def substituted(self, code: str, captures: Captures, anchor: ast.stmt) -> str:
        """Return new code with captured expressions in the place of their names.

        An expression gets parentheses if the code would change its meaning without them.

        Raises:
            CannotPlace: Python does not allow an expression in the place of its name.
        """
        text = capture_names(code).strip("\n")
        tree = ast.parse(text)
        names = sorted(captures_of(tree), key=lambda n: (n.lineno, n.col_offset))
        for name in reversed(names):
            expression = captures[name.id]
            tree = _Put(name, expression).visit(tree)
            *above, line = text.split("\n")[: name.lineno]
            below = text.split("\n")[name.lineno :]
            start = len(line.encode()[: name.col_offset].decode())
            inner = "\n" + line.removesuffix(line.lstrip())
            own = self.text_of(expression).replace("\r\n", "\n")
            own = own.replace(f"\n{self.margin(anchor)}", inner)
            for candidate in (own, f"({own})"):
                new = line[:start] + candidate + line[start + len(name.id) :]
                text = "\n".join([*above, new, *below])
                if _is_read_as(tree, text):
                    break
            else:
                raise CannotPlace(
                    f"`{spelled(name.id)}` stands for `{own}`, which the new code cannot "
                    "take in its place"
                )
        return text


class _Put(ast.NodeTransformer):
    """Put an expression in the place of a name."""

    def __init__(self, name: ast.Name, expression: ast.expr) -> None:
        self._name = name
        self._expression = expression

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._expression if node is self._name else node


def _is_read_as(tree: ast.AST, text: str) -> bool:
    try:
        return matches(tree, ast.parse(text))
    except SyntaxError:
        return False


def _indented(code: str, margin: str) -> str:
    """Indent code as its neighbours, whose blocks may be indented by tabs."""
    if "\t" in margin:
        code = re.sub("(?m)^(?: {4})+", lambda found: "\t" * (len(found[0]) // 4), code)
    return indent(code, margin)
