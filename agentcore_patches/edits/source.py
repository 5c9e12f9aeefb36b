"""How edits are made in a file: its encoding, its lines, and the spans that change."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache

import libcst as cst

from agentcore_patches.edits.base import DefinitionEdit, Edit
from agentcore_patches.edits.cst_tools import descend, replace, statements_of
from agentcore_patches.edits.kinds import AddField, Graft
from agentcore_patches.edits.matching import (
    Misplaced,
    Path,
    Step,
    expect_one_definition,
)
from agentcore_patches.errors import SourceConflict


def apply_edits(source: bytes, edits: Sequence[Edit]) -> tuple[bytes, tuple[bool, ...]]:
    """The new source, and for each edit whether it changed anything.

    Raises:
        SourceConflict: the source cannot be parsed, or a place is missing, found too
            often or changed by others.
    """
    text, encoding = decode(source, edits[0].file)
    module = _Spans(text, edits[0].file)
    grafts = [edit for edit in edits if isinstance(edit, Graft)]
    by_scope = _group(edit for edit in edits if isinstance(edit, DefinitionEdit))
    splices: list[tuple[int, int, str]] = []
    changed: dict[Edit, bool] = {}

    for graft in grafts:
        with _placing(graft):
            place = module.place(graft)
            changed[graft] = not module.has(graft)
        if changed[graft]:
            splices.append((place, place, graft.text.replace("\n", module.newline)))
    for scope, group in by_scope.items():
        with _placing(group[0]):
            start, end = module.span(scope)
            # Fields are looked for and put in among the statements of the class itself.
            only_fields = all(
                isinstance(edit, AddField) and edit.scope == scope for edit in group
            )
            left_out = module.methods(scope) if only_fields else ()
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
    """The new text of one definition, and for each edit whether it changed anything."""
    with _placing(edits[0]):
        fragment = _Fragment(lines, scope, newline, left_out)
    made = []
    for edit in edits:
        with _placing(edit):
            made.append(fragment.apply(edit))
    return fragment.text() if any(made) else "".join(lines), tuple(made)


@lru_cache(maxsize=16)
def parse(text: str, file: str) -> ast.Module:
    """The tree of a file's text; kept for who asks next, and not to be changed.

    Raises:
        SourceConflict: it is not Python.
    """
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise SourceConflict(f"{file} cannot be parsed as Python: {error}") from error


class _Spans:
    """A module's lines, and which of them each definition takes."""

    def __init__(self, text: str, file: str) -> None:
        self._tree = parse(text, file)
        self._lines = list(io.StringIO(text, newline=""))
        first = self._lines[0] if self._lines else "\n"
        self.newline = "\r\n" if first.endswith("\r\n") else "\n"

    def span(self, scope: str) -> tuple[int, int]:
        """First line, and line after the last, of the definition, counted from 0."""
        return _span(self._definition(scope))

    def place(self, graft: Graft) -> int:
        """The line before which the graft goes."""
        start, end = self.span(graft.scope)
        if graft.inside:
            return end
        # A comment above the definition stays with it.
        above = [_span(node)[1] for node in self._tree.body if _span(node)[1] <= start]
        while start > max(above, default=0) and self._lines[start - 1].startswith("#"):
            start -= 1
        return start

    def has(self, graft: Graft) -> bool:
        """Whether the module holds the graft as it is; an error if it is another."""
        opening = "class _:\n" if graft.inside else ""
        [wanted] = ast.parse(opening + graft.text).body
        around: ast.AST = self._tree
        if graft.inside:
            assert isinstance(wanted, ast.ClassDef)
            [wanted] = wanted.body
            around = self._definition(graft.scope)
        there = [
            node
            for node in ast.iter_child_nodes(around)
            if getattr(node, "name", None) == graft.name
        ]
        if there and (len(there) > 1 or ast.dump(there[0]) != ast.dump(wanted)):
            raise Misplaced("the file has another definition of that name")
        return bool(there)

    def lines(self, start: int, end: int) -> tuple[str, ...]:
        """The lines from `start` to before `end`."""
        return tuple(self._lines[start:end])

    def methods(self, scope: str) -> tuple[tuple[int, int], ...]:
        """First line, and line after the last, of what a class defines, from its own."""
        definition = self._definition(scope)
        start, _ = _span(definition)
        inner = [node for node in definition.body if isinstance(node, _DEFINITIONS)]
        return tuple((first - start, last - start) for first, last in map(_span, inner))

    def spliced(self, splices: Iterable[tuple[int, int, str]]) -> str:
        """The text with lines `start` to `end` replaced, for each splice."""
        lines = self._lines.copy()
        for start, end, new in sorted(splices, reverse=True):
            lines[start:end] = [new]
        return "".join(lines)

    def _definition(
        self, scope: str
    ) -> ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef:
        body: Sequence[ast.stmt] = self._tree.body
        for name in scope.split("."):
            found = [
                node
                for node in body
                if isinstance(node, _DEFINITIONS) and node.name == name
            ]
            expect_one_definition(name, len(found))
            body = found[0].body
        return found[0]


_DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def _span(node: ast.stmt) -> tuple[int, int]:
    decorators = getattr(node, "decorator_list", [])
    assert node.end_lineno is not None
    first = min(part.lineno for part in [node, *decorators])
    return first - 1, node.end_lineno


class _Fragment:
    """One definition, parsed on its own, while its edits are made.

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
            stand_in = f"{margin}def agentcore_left_out_{start}(): ...{newline}"
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
            raise Misplaced(f"libcst cannot parse it: {error.message}") from error
        # libcst gives back every byte but for some of these.
        if re.search(r"\f|\r(?!\n)", text) and self._module.code != source:
            raise Misplaced("it has form feeds, or carriage returns as line ends")

    def apply(self, edit: DefinitionEdit) -> bool:
        """Make an edit at or below the fragment's scope; whether it changed anything."""
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
        """The source of the definition as it is now."""
        code = self._module.code.removeprefix(self._opening)
        for stand_in, lines in self._left_out.items():
            code = code.replace(stand_in, lines)
        return code

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
    """Edits by the outermost scope among them that holds theirs, in their order."""
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
    """The text of a file, and its encoding.

    Raises:
        SourceConflict: it cannot be decoded.
    """
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
        return source.decode(encoding), encoding
    except (SyntaxError, UnicodeDecodeError, LookupError) as error:
        raise SourceConflict(f"{file} cannot be decoded: {error}") from error


@contextmanager
def _placing(edit: Edit) -> Iterator[None]:
    """Turn `Misplaced` into an error that names file, scope and edit."""
    try:
        yield
    except Misplaced as misplaced:
        raise SourceConflict(
            f"{edit.file}: in `{edit.scope}`, cannot place {edit.describe()}: "
            f"{misplaced}"
        ) from None
