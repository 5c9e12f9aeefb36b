"""Apply edits to a file: its encoding, its lines, and the spans that change."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import pairwise
from textwrap import indent
from typing import TypeGuard

import libcst as cst

from agentcore_patches.edits.base import DefinitionEdit, Edit
from agentcore_patches.edits.cst_tools import descend, replace, statements_of
from agentcore_patches.edits.kinds import (
    AddMethod,
    Import,
    Land,
    RefuseDefinition,
)
from agentcore_patches.edits.matching import (
    CannotPlace,
    InvalidEdit,
    Path,
    Step,
    expect_one_definition,
)
from agentcore_patches.edits.unneeded import DEFINITIONS, Span, span, unneeded
from agentcore_patches.errors import SourceConflict


def apply_edits(
    source: bytes | None, edits: Sequence[Edit]
) -> tuple[bytes, tuple[bool, ...]]:
    """Return the new source, and for each edit whether it changed anything.

    `source` is None if the file is absent: `Land` creates it.

    Raises:
        SourceConflict: the source is absent or cannot be parsed, or a place is missing,
            found too often or changed.
    """
    if isinstance(landing := edits[0], Land):
        with _placing(landing):
            landed = landing.apply(source)
        return landed or source or b"", (landed is not None,)
    if source is None:
        raise SourceConflict(f"{edits[0].file}: there is no such file")
    text, encoding = decode(source, edits[0].file)
    module = _Spans(text, edits[0].file)
    splices: list[tuple[int, int, str]] = []
    changed: dict[Edit, bool] = {}

    for edit in edits:
        if isinstance(edit, Import | AddMethod):
            with _placing(edit):
                splice = module.insertion(edit)
            changed[edit] = splice is not None
            if splice is not None:
                splices.append(splice)
        elif isinstance(edit, RefuseDefinition):
            with _placing(edit):
                module.refuse(edit.scope)
            changed[edit] = False
    by_scope = _group(edit for edit in edits if isinstance(edit, DefinitionEdit))
    for scope, group in by_scope.items():
        with _placing(group[0]):
            start, end = module.span(scope)
            left_out = module.unneeded(scope, group)
        new, made = _edit_definition(
            module.lines(start, end), scope, module.newline, left_out, group
        )
        changed.update(zip(group, made, strict=True))
        if any(made):
            splices.append((start, end, new))

    new_text = module.spliced(splices)
    return new_text.encode(encoding), tuple(changed[edit] for edit in edits)


def _edit_definition(
    lines: tuple[str, ...],
    scope: str,
    newline: str,
    left_out: tuple[tuple[int, int], ...],
    edits: tuple[DefinitionEdit, ...],
) -> tuple[str, tuple[bool, ...]]:
    """Return the new source of a definition, and whether each edit changed anything."""
    with _placing(edits[0]):
        fragment = _Fragment(lines, scope, newline, left_out)
    made = []
    for edit in edits:
        with _placing(edit):
            made.append(fragment.apply(edit))
    return fragment.text() if any(made) else "".join(lines), tuple(made)


@lru_cache(maxsize=64)
def parse(text: str, file: str) -> ast.Module:
    """Parse a file, or raise SourceConflict. The result is cached: do not modify it."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise SourceConflict(f"{file} cannot be parsed as Python: {error}") from error


class _Spans:
    """A module's lines, and the lines of each definition."""

    def __init__(self, text: str, file: str) -> None:
        self._tree = parse(text, file)
        self._lines = list(io.StringIO(text, newline=""))
        first = self._lines[0] if self._lines else "\n"
        self.newline = "\r\n" if first.endswith("\r\n") else "\n"

    def span(self, scope: str) -> tuple[int, int]:
        return span(self._definition(scope))

    def refuse(self, scope: str) -> None:
        """Raise CannotPlace if the module defines a scope."""
        *outer, name = scope.split(".")
        body = self._definition(".".join(outer)).body if outer else self._tree.body
        if any(_is_definition(node, name) for node in body):
            raise CannotPlace("it was found, so this is another release's file")

    def insertion(self, edit: Import | AddMethod) -> tuple[int, int, str] | None:
        """Return the splice that adds the code; None if the module has it."""
        if isinstance(edit, Import):
            name, block, margin = edit.imported, self._tree.body, ""
            place = self._place_of_import(edit)
        else:
            definition = self._definition(edit.scope)
            if not isinstance(definition, ast.ClassDef):
                raise CannotPlace("it is a function, not a class")
            name, block, margin = edit.method, definition.body, self._margin(definition)
            place = span(definition)[1]
        text = indent(edit.text, margin)
        [wanted] = ast.parse(f"if True:\n{text}" if margin else text).body
        if isinstance(wanted, ast.If):
            [wanted] = wanted.body
        there = [node for node in block if name in _bound_names(node)]
        if there and (len(there) > 1 or not _is_same(there[0], wanted)):
            raise CannotPlace(f"there is another `{name}`")
        if there:
            return None
        if isinstance(edit, Import) and (joined := self._joined(edit)):
            return joined
        if place and not self._lines[place - 1].endswith(("\n", "\r")):
            text = f"\n{text}"
        return place, place, text.replace("\n", self.newline)

    def _joined(self, edit: Import) -> tuple[int, int, str] | None:
        """Return a splice that adds a name to a line with imports from the same module.

        isort would join the two. None if there is no such line of plain names.
        """
        for node in self._tree.body:
            match node:
                case ast.ImportFrom(module=edit.module, names=names, level=0):
                    others = [name.name for name in names]
                    start, end = span(node)
                    line = "".join(self._lines[start:end]).rstrip()
                    plain = f"from {edit.module} import {', '.join(others)}"
                    if line == plain and plain.islower():
                        text = edit.text_with(*others).replace("\n", self.newline)
                        return start, end, text
        return None

    def _place_of_import(self, edit: Import) -> int:
        """Return the position before the first import from the same package, as isort does.

        Without such an import, return the position before the first one that isort puts
        later.
        """
        sorted_below: ast.stmt | None = None
        root = edit.module.partition(".")[0]
        for node in self._tree.body:
            module = (isinstance(node, ast.ImportFrom) and node.module) or ""
            if "isort: skip" in self._lines[span(node)[0]]:
                continue
            if f"{module}.".startswith(f"{edit.module}."):
                return self._start_of_comment(node)
            if module.partition(".")[0] == root and module > edit.module:
                sorted_below = sorted_below or node
        if sorted_below is None:
            raise CannotPlace(f"the file imports nothing of `{root}`")
        return self._start_of_comment(sorted_below)

    def _start_of_comment(self, node: ast.stmt) -> int:
        """Return the first line of the comment above a statement, or of the statement.

        A comment at the top of a file belongs to the whole file.
        """
        start, _ = span(node)
        above = [span(other)[1] for other in self._tree.body]
        end_of_last = max((end for end in above if end <= start), default=0)
        first = start
        while first > end_of_last and self._lines[first - 1].startswith("#"):
            first -= 1
        return first or start

    def _margin(self, definition: ast.ClassDef) -> str:
        first = definition.body[0]
        line = self._lines[span(first)[0]]
        margin = line.removesuffix(line.lstrip())
        if len(margin) != first.col_offset:
            raise CannotPlace("its body is on the line of its header")
        return margin

    def lines(self, start: int, end: int) -> tuple[str, ...]:
        return tuple(self._lines[start:end])

    def unneeded(self, scope: str, edits: Sequence[DefinitionEdit]) -> tuple[Span, ...]:
        """Return the lines of a definition that no edit can match, counted from its first."""
        definition = self._definition(scope)
        first, _ = span(definition)
        spans = unneeded(definition, self._lines, scope, edits)
        return tuple((start - first, end - first) for start, end in spans)

    def spliced(self, splices: Iterable[tuple[int, int, str]]) -> str:
        """Return the source with the lines `start` to `end` of each splice replaced.

        Raises:
            InvalidEdit: a method is for a class in a definition that other edits change.
        """
        lines = self._lines.copy()
        in_order = sorted(splices, key=lambda splice: splice[:2])
        for (_, end, _), (start, _, _) in pairwise(in_order):
            if start < end:
                raise InvalidEdit(
                    "a method is for a class in a definition that other edits change"
                )
        for start, end, new in reversed(in_order):
            lines[start:end] = [new]
        return "".join(lines)

    def _definition(
        self, scope: str
    ) -> ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef:
        body: Sequence[ast.stmt] = self._tree.body
        for name in scope.split("."):
            found = [node for node in body if _is_definition(node, name)]
            expect_one_definition(name, len(found))
            body = found[0].body
        return found[0]


_Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def _is_definition(node: ast.stmt, name: str) -> TypeGuard[_Definition]:
    return isinstance(node, DEFINITIONS) and node.name == name


def _is_same(there: ast.stmt, wanted: ast.stmt) -> bool:
    """True if the statement is equal, or an import of the same name and of others."""
    match there, wanted:
        case ast.ImportFrom(), ast.ImportFrom(names=[name]):
            alone = [other for other in there.names if other.name == name.name]
            there = ast.ImportFrom(there.module, alone, there.level)
    return ast.dump(there) == ast.dump(wanted)


def _bound_names(statement: ast.stmt) -> set[str]:
    """Return the names that a statement binds in its block, at any depth."""
    names: set[str] = set()
    pending: list[ast.AST] = [statement]
    while pending:
        node = pending.pop()
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                names.add(node.name)
                continue
            case ast.Lambda() | ast.comprehension():
                continue
            case ast.alias():
                names.add((node.asname or node.name).partition(".")[0])
            case ast.Name(ctx=ast.Store() | ast.Del()):
                names.add(node.id)
            case ast.ExceptHandler() | ast.MatchAs() | ast.MatchStar():
                names.add(node.name or "")
            case ast.MatchMapping():
                names.add(node.rest or "")
        pending += ast.iter_child_nodes(node)
    return names


_STAND_IN = re.compile(r"^[ \t]*agentcore_left_out_\d+\r?\n", re.MULTILINE)


class _Fragment:
    """One definition, parsed on its own, to apply edits to it.

    libcst is slow: lines that no edit needs are `left_out` of what it parses.
    """

    def __init__(
        self,
        all_lines: Sequence[str],
        scope: str,
        newline: str,
        left_out: Sequence[tuple[int, int]],
    ) -> None:
        lines = list(all_lines)
        self._left_out: dict[str, str] = {}
        for start, end in reversed(left_out):
            margin = lines[start].removesuffix(lines[start].lstrip())
            stand_in = f"{margin}agentcore_left_out_{start}{newline}"
            self._left_out[stand_in] = "".join(lines[start:end])
            lines[start:end] = [stand_in]
        text = "".join(lines)
        self._scope = scope.split(".")
        self._opening = f"class _:{newline}" if len(self._scope) > 1 else ""
        source = self._opening + text
        config: cst.PartialParserConfig = cst.PartialParserConfig(
            default_indent="    ", default_newline=newline
        )
        try:
            self._module = cst.parse_module(source, config)
        except cst.ParserSyntaxError as error:
            raise CannotPlace(f"libcst cannot parse it: {error.message}") from error
        # libcst gives back every byte but for some of these.
        if re.search(r"\f|\r(?!\n)", text) and self._module.code != source:
            raise CannotPlace("it has form feeds, or carriage returns as line ends")

    def apply(self, edit: DefinitionEdit) -> bool:
        """Apply an edit at or below the scope; return True if it changed anything."""
        path: list[Step] = [("body", 0)]
        if self._opening:
            path += [("body", None), ("body", 0)]
        for name in edit.scope.split(".")[len(self._scope) :]:
            path += [("body", None), self._member(path, name)]
        definition = descend(self._module, path)
        assert isinstance(definition, cst.ClassDef | cst.FunctionDef)
        new = edit.apply(definition)
        if new is None:
            return False
        self._module = replace(self._module, path, new)
        return True

    def text(self) -> str:
        code = self._module.code.removeprefix(self._opening)
        return re.sub(_STAND_IN, lambda found: self._left_out[found[0]], code)

    def _member(self, path: Path | list[Step], name: str) -> Step:
        block = statements_of(descend(self._module, [*path, ("body", None)]))
        found = [
            index
            for index, node in enumerate(block)
            if isinstance(node, cst.ClassDef | cst.FunctionDef)
            and node.name.value == name
        ]
        expect_one_definition(name, len(found))
        return "body", found[0]


def _group(edits: Iterable[DefinitionEdit]) -> dict[str, tuple[DefinitionEdit, ...]]:
    """Group edits by their outermost scope; keep the order."""
    edits = list(edits)
    scopes = {edit.scope for edit in edits}
    groups: dict[str, list[DefinitionEdit]] = {}
    for edit in edits:
        parts = edit.scope.split(".")
        holders = (".".join(parts[:depth]) for depth in range(1, len(parts) + 1))
        groups.setdefault(
            next(scope for scope in holders if scope in scopes), []
        ).append(edit)
    return {scope: tuple(group) for scope, group in groups.items()}


def decode(source: bytes, file: str) -> tuple[str, str]:
    """Return the source of a file and its encoding, or raise SourceConflict."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
        return source.decode(encoding), encoding
    except (SyntaxError, UnicodeDecodeError, LookupError) as error:
        raise SourceConflict(f"{file} cannot be decoded: {error}") from error


@contextmanager
def _placing(edit: Edit) -> Iterator[None]:
    """Turn `CannotPlace` into an error that names file, scope and edit."""
    try:
        yield
    except CannotPlace as reason:
        name = f" ({edit.name})" if edit.name else ""
        raise SourceConflict(
            f"{edit.file}: in {edit.where}, cannot place {edit.describe()}{name}: "
            f"{reason}"
        ) from None
