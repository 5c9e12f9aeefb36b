"""The few kinds of edit, on libcst: each finds its place by scope, then by shape.

A *scope* is a dotted path of definitions (`OpenAIServingChat._build_chat_response`). A
*shape* is Python source that one statement must equal, whatever its spacing, comments
and parentheses; in it `...` stands for anything and a name in capitals (`CHUNK`) for an
expression that the inserted code may use again.

Only the definitions that edits name are parsed and printed again; every other byte of a
file is left alone.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import io
import re
import tokenize
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from textwrap import indent
from typing import Any, TypeAlias, TypeGuard, TypeVar

import libcst as cst

from agentcore_patches.errors import SourceConflict

Definition: TypeAlias = cst.ClassDef | cst.FunctionDef
Captures: TypeAlias = dict[str, cst.CSTNode]
Step: TypeAlias = tuple[str, int | None]
Path: TypeAlias = tuple[Step, ...]
Node = TypeVar("Node", bound=cst.CSTNode)

OWNER = "agentcore-patch"


class Misplaced(Exception):
    """A definition does not have the place that an edit needs; says what was found."""


# What an edit is


@dataclass(frozen=True)
class Edit(ABC):
    """One change of one definition.

    Attributes:
        file: path below `sglang`.
        scope: dotted path of the definition to change.
        note: why the change is there; stands as a comment beside it where it lands.
    """

    file: str
    scope: str
    _: dataclasses.KW_ONLY
    note: str = ""

    @abstractmethod
    def describe(self) -> str:
        """What the edit does, in a few words that name what it looks for."""

    @abstractmethod
    def apply(self, definition: Definition) -> Definition | None:
        """The changed definition, or None if the change is there already.

        Raises:
            Misplaced: the place is missing, found twice, or changed by somebody else.
        """


@dataclass(frozen=True)
class AddField(Edit):
    """Declare a field after the last one of a class."""

    declaration: str

    def describe(self) -> str:
        return f"field `{self.declaration}`"

    def apply(self, definition: Definition) -> Definition | None:
        field = _small(self.declaration, cst.AnnAssign)
        statements = definition.body.body
        declared = {
            index: small
            for index, statement in enumerate(statements)
            if (small := _only(statement, cst.AnnAssign)) is not None
        }
        for existing in declared.values():
            if existing.target.deep_equals(field.target):
                if _matches(field, existing):
                    return None
                raise Misplaced(f"it has another one: `{_code(existing)}`")
        if not declared:
            raise Misplaced("the class declares no fields")
        new = _statements(self.declaration, self.note)
        return _splice(definition, max(declared) + 1, new)


@dataclass(frozen=True)
class AddParameter(Edit):
    """Add a parameter with a default at the end of a function's parameters."""

    parameter: str

    def describe(self) -> str:
        return f"parameter `{self.parameter}`"

    def apply(self, definition: Definition) -> Definition | None:
        if not isinstance(definition, cst.FunctionDef):
            raise Misplaced("it is not a function")
        signature = _statements(f"def _({self.parameter}): ...")[0]
        assert isinstance(signature, cst.FunctionDef)
        wanted = signature.params.params[0]
        params = definition.params
        for existing in (*params.posonly_params, *params.params, *params.kwonly_params):
            if existing.name.value == wanted.name.value:
                if _matches(wanted, existing):
                    return None
                raise Misplaced(f"it has another one: `{_item_code(existing)}`")
        # After `*args` or `*` only a keyword can have a default that nothing else takes.
        positional = isinstance(params.star_arg, cst.MaybeSentinel)
        kind = "params" if positional else "kwonly_params"
        opening = definition.whitespace_before_params
        items = _append_item(getattr(params, kind), wanted, opening)
        return definition.with_changes(params=params.with_changes(**{kind: items}))


@dataclass(frozen=True)
class AddKeyword(Edit):
    """Give every call of `function` in a scope one more keyword argument."""

    function: str
    argument: str

    def describe(self) -> str:
        return f"`{self.argument.split('=')[0]}=` in calls of `{self.function}`"

    def apply(self, definition: Definition) -> Definition | None:
        call = cst.parse_expression(f"_(\n{indent(self.argument, '    ')}\n)")
        assert isinstance(call, cst.Call)
        [argument] = call.args
        function = cst.parse_expression(self.function)
        calls = [
            path
            for path, node in _walk(definition, _compared_fields)
            if isinstance(node, cst.Call) and _matches(function, node.func)
        ]
        if not calls:
            raise Misplaced(f"`{self.function}` is not called there")
        changed: Definition | None = None
        for path in reversed(calls):  # The inner ones first: the outer ones move them.
            old = _descend(changed or definition, path)
            assert isinstance(old, cst.Call)
            new = _with_keyword(old, argument)
            if new is not None:
                changed = _replace(changed or definition, path, new)
        return changed


@dataclass(frozen=True)
class Insert(Edit):
    """Insert statements before or after the one statement of a shape.

    With neither `before` nor `after` they go to the start of the function.
    """

    code: str
    _: dataclasses.KW_ONLY
    before: str = ""
    after: str = ""

    def describe(self) -> str:
        first_line = self.code.splitlines()[0]
        where = (
            f"before `{_headline(self.before)}`"
            if self.before
            else f"after `{_headline(self.after)}`"
            if self.after
            else "at the start"
        )
        return f"`{first_line}` {where}"

    def apply(self, definition: Definition) -> Definition | None:
        if not (self.before or self.after):
            start = 1 if definition.get_docstring() is not None else 0
            return self._insert(definition, start, {})
        places = _find(definition, _statement(self.before or self.after))
        if len(places) != 1:
            raise Misplaced(_count(places))
        [((*block_path, (_, anchor)), captures)] = places
        assert anchor is not None
        position = anchor if self.before else anchor + 1
        block = self._insert(_descend(definition, block_path), position, captures)
        return None if block is None else _replace(definition, block_path, block)

    def _insert(self, block: Node, position: int, captures: Captures) -> Node | None:
        """`block` with the new statements at `position`, None if it has them."""
        new = _statements(self.code, self.note, captures)
        for start in range(len(_body(block)) - len(new) + 1):
            there = _body(block)[start : start + len(new)]
            if all(map(_matches, new, there)):
                return None
        return _splice(block, position, new)


@dataclass(frozen=True)
class Replace(Edit):
    """Put another simple statement in the place of the one of a shape, or of `each`."""

    old: str
    new: str
    _: dataclasses.KW_ONLY
    each: bool = False

    def describe(self) -> str:
        return f"`{_headline(self.new)}` for `{_headline(self.old)}`"

    def apply(self, definition: Definition) -> Definition | None:
        places = _find(definition, _statement(self.old))
        if not places:
            made = _find(definition, _statement(self.new))
            if len(made) == 1 or (made and self.each):
                return None
        if not places or (len(places) > 1 and not self.each):
            raise Misplaced(_count(places))
        for path, captures in places:
            old = _descend(definition, path)
            [new] = _statements(self.new, self.note, captures)
            assert isinstance(old, cst.SimpleStatementLine)
            assert isinstance(new, cst.SimpleStatementLine)
            # Blank lines and comments are the file's own, and stay.
            new = new.with_changes(
                leading_lines=[*old.leading_lines, *new.leading_lines],
                trailing_whitespace=old.trailing_whitespace,
            )
            definition = _replace(definition, path, new)
        return definition


@dataclass(frozen=True)
class Narrow(Edit):
    """Let the one `if` of a shape hold only if `condition` holds too."""

    shape: str
    condition: str

    def describe(self) -> str:
        return f"`{self.condition}` in `{_headline(self.shape)}`"

    def apply(self, definition: Definition) -> Definition | None:
        shape = _statement(self.shape)
        places = _find(definition, shape)
        if not places and len(_find(definition, self._narrowed(shape))) == 1:
            return None
        if len(places) != 1:
            raise Misplaced(_count(places))
        [(path, _)] = places
        old = _descend(definition, path)
        return _replace(definition, path, self._narrowed(old))

    def _narrowed(self, statement: cst.CSTNode) -> cst.If:
        assert isinstance(statement, cst.If)
        condition = cst.parse_expression(self.condition)
        parts = [_operand(part) for part in (statement.test, condition)]
        test = cst.BooleanOperation(parts[0], cst.And(), parts[1])
        return statement.with_changes(test=test)


@dataclass(frozen=True)
class Graft(Edit):
    """Copy a definition of `grafts/` in front of the scope, or `inside` it at the end."""

    definition: type | Callable[..., Any]
    _: dataclasses.KW_ONLY
    inside: bool = False

    def describe(self) -> str:
        return f"definition of `{self.name}`"

    def apply(self, definition: Definition) -> Definition | None:
        raise NotImplementedError("a graft is text: `apply_edits` splices its lines")

    @property
    def name(self) -> str:
        return self.definition.__name__

    @property
    def text(self) -> str:
        """The source that lands, with its comment and the blank lines around it."""
        source = inspect.getsource(self.definition)
        text = "\n".join([*_comment(self.note), source])
        return indent(f"\n{text}", "    ") if self.inside else f"{text}\n\n"


# How edits are made in a file


def apply_edits(source: bytes, edits: Sequence[Edit]) -> tuple[bytes, tuple[bool, ...]]:
    """The new source, and for each edit whether it changed anything.

    Raises:
        SourceConflict: no Python, or a place is missing, doubled or changed by others.
    """
    text, encoding = _decode(source, edits[0].file)
    module = _Spans(text, edits[0].file)
    grafts = [edit for edit in edits if isinstance(edit, Graft)]
    by_scope = _group(edit for edit in edits if not isinstance(edit, Graft))
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
            fragment = _Fragment(module.text(start, end), scope, module.newline)
        for edit in group:
            with _placing(edit):
                changed[edit] = fragment.apply(edit)
        if any(changed[edit] for edit in group):
            splices.append((start, end, fragment.text()))

    new = module.spliced(splices) if splices else text
    return new.encode(encoding), tuple(changed[edit] for edit in edits)


class _Spans:
    """A module's lines, and which of them each definition takes."""

    def __init__(self, text: str, file: str) -> None:
        try:
            self._tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise SourceConflict(
                f"{file} is no Python that can be parsed: {error}"
            ) from error
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
            raise Misplaced("the file has another one")
        return bool(there)

    def text(self, start: int, end: int) -> str:
        return "".join(self._lines[start:end])

    def spliced(self, splices: Iterable[tuple[int, int, str]]) -> str:
        """The text with lines `start` to `end` replaced, for each splice."""
        lines = self._lines.copy()
        for start, end, new in sorted(splices, reverse=True):
            lines[start:end] = [new]
        return "".join(lines)

    def _definition(self, scope: str) -> ast.stmt:
        body: Sequence[ast.stmt] = self._tree.body
        for name in scope.split("."):
            found = [
                node
                for node in body
                if isinstance(node, _DEFINITIONS) and node.name == name
            ]
            if len(found) != 1:
                raise Misplaced(f"`{name}` is {_times('defined', len(found))}")
            body = found[0].body
        return found[0]


_DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def _span(node: ast.stmt) -> tuple[int, int]:
    decorators = getattr(node, "decorator_list", [])
    assert node.end_lineno is not None
    first = min(part.lineno for part in [node, *decorators])
    return first - 1, node.end_lineno


class _Fragment:
    """One definition, parsed on its own, while its edits are made."""

    def __init__(self, text: str, scope: str, newline: str) -> None:
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

    def apply(self, edit: Edit) -> bool:
        """Make an edit at or below the fragment's scope; whether it changed anything."""
        path: list[Step] = [("body", 0)]
        if self._opening:
            path += [("body", None), ("body", 0)]
        for name in edit.scope.split(".")[len(self._scope) :]:
            path += [("body", None), self._member(path, name)]
        definition = _descend(self._module, path)
        assert isinstance(definition, cst.ClassDef | cst.FunctionDef)
        new = edit.apply(definition)
        if new is None:
            return False
        self._module = _replace(self._module, path, new)
        return True

    def text(self) -> str:
        return self._module.code.removeprefix(self._opening)

    def _member(self, path: Path | list[Step], name: str) -> Step:
        block = _body(_descend(self._module, [*path, ("body", None)]))
        found = [
            index
            for index, node in enumerate(block)
            if isinstance(node, cst.ClassDef | cst.FunctionDef)
            and node.name.value == name
        ]
        if len(found) != 1:
            raise Misplaced(f"`{name}` is {_times('defined', len(found))}")
        return "body", found[0]


def _group(edits: Iterable[Edit]) -> dict[str, list[Edit]]:
    """Edits by the outermost scope among them that holds theirs, in their order."""
    edits = list(edits)
    scopes = {edit.scope for edit in edits}
    groups: dict[str, list[Edit]] = {}
    for edit in edits:
        parts = edit.scope.split(".")
        holders = (".".join(parts[:depth]) for depth in range(1, len(parts) + 1))
        groups.setdefault(
            next(scope for scope in holders if scope in scopes), []
        ).append(edit)
    return groups


def _decode(source: bytes, file: str) -> tuple[str, str]:
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
        return source.decode(encoding), encoding
    except (SyntaxError, UnicodeDecodeError, LookupError) as error:
        raise SourceConflict(f"{file} is no text in its encoding: {error}") from error


@contextmanager
def _placing(edit: Edit) -> Iterator[None]:
    """Says which place of which edit it is that is not as it should be."""
    try:
        yield
    except Misplaced as misplaced:
        raise SourceConflict(
            f"{edit.file}: in `{edit.scope}`, looked for the place of "
            f"{edit.describe()}, but {misplaced}"
        ) from None


def _count(places: Sequence[object]) -> str:
    return f"that place is {_times('there', len(places))}"


def _times(what: str, count: int) -> str:
    return f"{what} {count} times" if count else f"not {what}"


# How a place is found


_FORMATTING = (
    "comma",
    "end",
    "footer",
    "header",
    "indent",
    "leading_lines",
    "lines_after_decorators",
    "lpar",
    "newline",
    "rpar",
    "semicolon",
    "start",
    "trailing_whitespace",
)


@cache
def _compared_fields(kind: type[cst.CSTNode]) -> tuple[str, ...]:
    names = (field.name for field in dataclasses.fields(kind))
    return tuple(
        name
        for name in names
        if name not in _FORMATTING and not name.startswith("whitespace")
    )


def _matches(pattern: Any, node: Any, captures: Captures | None = None) -> bool:
    """Whether `node` has the shape of `pattern`; fills in what capitals stand for.

    Without `captures`, `...` and capitals stand for themselves.
    """
    if captures is not None:
        if _is_anything(pattern):
            return True
        if isinstance(pattern, cst.Name) and pattern.value.isupper():
            first = captures.setdefault(pattern.value, node)
            return isinstance(node, cst.CSTNode) and _matches(first, node)
    match pattern, node:
        case cst.SimpleString(evaluated_value=one), cst.SimpleString(
            evaluated_value=other
        ):
            return one == other
        case cst.CSTNode(), cst.CSTNode():
            return type(pattern) is type(node) and all(
                _matches(getattr(pattern, name), getattr(node, name), captures)
                for name in _compared_fields(type(pattern))
                if not (
                    captures is not None
                    and name == "orelse"
                    and getattr(pattern, name) is None
                )
            )
        case [*ones], [*others]:
            if captures is not None and len(ones) == 1 and _is_anything(ones[0]):
                return True
            return len(ones) == len(others) and all(
                _matches(one, other, captures)
                for one, other in zip(ones, others, strict=True)
            )
    return bool(pattern == node)


def _is_anything(pattern: object) -> bool:
    """Whether it is `...`: an expression, an argument, or a whole suite."""
    match pattern:
        case cst.Ellipsis():
            return True
        case cst.Arg(value=value) | cst.Expr(value=value):
            return isinstance(value, cst.Ellipsis)
        case cst.SimpleStatementSuite(body=[only]):
            return _is_anything(only)
    return False


def _find(definition: Definition, pattern: cst.CSTNode) -> list[tuple[Path, Captures]]:
    """Every statement of that shape in a definition, in the order of the source."""
    found: list[tuple[Path, Captures]] = []
    for path, node in _walk(definition, lambda kind: _BLOCKS):
        captures: Captures = {}
        in_block = isinstance(node, cst.BaseStatement) and path[-1][1] is not None
        if in_block and _matches(pattern, node, captures):
            found.append((path, captures))
    return found


_BLOCKS = ("body", "handlers", "orelse", "finalbody", "cases")


def _walk(
    node: cst.CSTNode,
    fields: Callable[[type[cst.CSTNode]], Iterable[str]],
    path: Path = (),
) -> Iterator[tuple[Path, cst.CSTNode]]:
    """Everything below a node, by the fields that `fields` names of each kind."""
    for name in fields(type(node)):
        value = getattr(node, name, None)
        children: list[tuple[Step, cst.CSTNode]] = []
        if isinstance(value, cst.CSTNode):
            children = [((name, None), value)]
        elif isinstance(value, list | tuple):
            children = [((name, index), child) for index, child in enumerate(value)]
        for step, child in children:
            here = (*path, step)
            yield here, child
            yield from _walk(child, fields, here)


# How a tree is changed


def _descend(node: cst.CSTNode, path: Iterable[Step]) -> cst.CSTNode:
    for name, index in path:
        value = getattr(node, name)
        node = value if index is None else value[index]
    return node


def _replace(node: Node, path: Sequence[Step], new: cst.CSTNode) -> Node:
    """`node` with the descendant at `path` replaced."""
    if not path:
        return new  # type: ignore[return-value]
    (name, index), *rest = path
    value = getattr(node, name)
    if index is None:
        return node.with_changes(**{name: _replace(value, rest, new)})
    children = list(value)
    children[index] = _replace(children[index], rest, new)
    return node.with_changes(**{name: children})


def _body(node: cst.CSTNode) -> Sequence[cst.BaseStatement]:
    """The statements of a block, or of a definition's block."""
    body = getattr(node, "body")  # noqa: B009 - every caller's node has one
    return body if isinstance(body, Sequence) else _body(body)


def _operand(expression: cst.BaseExpression) -> cst.BaseExpression:
    """An expression that may stand beside `and`."""
    loose = (cst.BooleanOperation, cst.IfExp, cst.Lambda, cst.NamedExpr)
    if expression.lpar or not isinstance(expression, loose):
        return expression
    return expression.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])


def _splice(node: Node, position: int, new: Sequence[cst.BaseStatement]) -> Node:
    """A block, or a definition, with statements inserted before `position`."""
    if isinstance(node, cst.SimpleStatementSuite):
        raise Misplaced("its body stands on one line")
    if not isinstance(node, cst.IndentedBlock):
        return node.with_changes(body=_splice(node.body, position, new))  # type: ignore[attr-defined]
    return node.with_changes(body=[*node.body[:position], *new, *node.body[position:]])


def _append_item(
    items: Sequence[Node], new: Node, opening: cst.BaseParenthesizableWhitespace
) -> list[Node]:
    """A call's arguments, or a function's parameters, with one more, laid out alike.

    `opening` is what stands between the parenthesis and the first of them. Comments stay
    with the item that they follow.
    """
    after = next(name for name in _AFTER_ITEM if hasattr(new, name))
    nothing = cst.SimpleWhitespace("")
    if not items:
        return [new.with_changes(**{after: nothing})]
    *most, last = items
    comma = getattr(last, "comma")  # noqa: B009 - both kinds of item have one
    trailing = isinstance(comma, cst.Comma)
    closing = comma.whitespace_after if trailing else getattr(last, after)
    gap: cst.BaseParenthesizableWhitespace = cst.SimpleWhitespace(" ")
    if most:
        gap = most[-1].comma.whitespace_after  # type: ignore[attr-defined]
    elif trailing and _breaks(closing):
        gap = opening
    if _breaks(gap):
        gap = _bare(gap)
        if _breaks(closing):
            gap = gap.with_changes(
                first_line=closing.first_line, empty_lines=closing.empty_lines
            )
            closing = _bare(closing)
    separator = (comma if trailing else cst.Comma()).with_changes(whitespace_after=gap)
    ending = (
        {"comma": cst.Comma(whitespace_after=closing), after: nothing}
        if trailing
        else {"comma": cst.MaybeSentinel.DEFAULT, after: closing}
    )
    return [
        *most,
        last.with_changes(**{"comma": separator, after: nothing}),
        new.with_changes(**ending),
    ]


_AFTER_ITEM = ("whitespace_after_arg", "whitespace_after_param")


def _breaks(
    whitespace: cst.BaseParenthesizableWhitespace,
) -> TypeGuard[cst.ParenthesizedWhitespace]:
    return isinstance(whitespace, cst.ParenthesizedWhitespace)


def _bare(whitespace: cst.ParenthesizedWhitespace) -> cst.ParenthesizedWhitespace:
    """A line break without the comments that stand before it."""
    return whitespace.with_changes(
        first_line=cst.TrailingWhitespace(newline=whitespace.first_line.newline),
        empty_lines=[],
    )


def _with_keyword(call: cst.Call, argument: cst.Arg) -> cst.Call | None:
    """A call with one more keyword argument, None if it has it."""
    assert argument.keyword is not None
    for existing in call.args:
        if existing.keyword is not None and _matches(
            existing.keyword, argument.keyword
        ):
            if _matches(argument, existing):
                return None
            raise Misplaced(f"a call has another one: `{_item_code(existing)}`")
    # What is unpacked stays the last.
    unpacked = (
        call.args[-1:] if len(call.args) > 1 and call.args[-1].star == "**" else []
    )
    named = call.args[: len(call.args) - len(unpacked)]
    named = _append_item(named, argument, call.whitespace_before_args)
    return call.with_changes(args=[*named, *unpacked])


# How shapes and new code are read


@cache
def _statement(code: str) -> cst.BaseStatement:
    statement = cst.parse_statement(code)
    assert isinstance(statement, cst.BaseStatement)
    return statement


def _statements(
    code: str, note: str = "", captures: Mapping[str, cst.CSTNode] | None = None
) -> list[cst.BaseStatement]:
    """New statements, with their comment, captured expressions filled in."""
    for name, node in (captures or {}).items():
        code = code.replace(name, _code(node))
    first, *rest = cst.parse_module(code).body
    comments = [cst.EmptyLine(comment=cst.Comment(line)) for line in _comment(note)]
    return [first.with_changes(leading_lines=comments), *rest]


def _comment(note: str) -> list[str]:
    if not note:
        return []
    first, *rest = note.splitlines()
    return [f"# {OWNER}: {first}", *(f"# {line}" for line in rest)]


SmallNode = TypeVar("SmallNode", bound=cst.BaseSmallStatement)


def _only(statement: cst.CSTNode, kind: type[SmallNode]) -> SmallNode | None:
    """The small statement of a line that has just one, if it is of that kind."""
    match statement:
        case cst.SimpleStatementLine(body=[small]) if isinstance(small, kind):
            return small
    return None


def _small(code: str, kind: type[SmallNode]) -> SmallNode:
    small = _only(_statement(code), kind)
    assert small is not None
    return small


def _code(node: cst.CSTNode) -> str:
    return cst.Module([]).code_for_node(node).strip()


def _item_code(item: cst.Arg | cst.Param) -> str:
    """An argument or parameter without what parts it from the next one."""
    nothing = {
        name: cst.SimpleWhitespace("") for name in _AFTER_ITEM if hasattr(item, name)
    }
    return _code(item.with_changes(comma=cst.MaybeSentinel.DEFAULT, **nothing))


def _headline(code: str) -> str:
    return code.splitlines()[0]
