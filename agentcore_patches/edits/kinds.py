"""The kinds of edit: each finds a place in a definition and changes it."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from textwrap import indent
from typing import ClassVar

import libcst as cst

from agentcore_patches.edits.base import DefinitionEdit, Edit, ScopedEdit
from agentcore_patches.edits.cst_tools import (
    Definition,
    NodeT,
    code_of,
    comment_lines,
    descend,
    insert_statements,
    lines_above,
    replace,
    statements_of,
    with_keyword,
)
from agentcore_patches.edits.matching import (
    CannotPlace,
    Captures,
    InvalidEdit,
    Step,
    capture_names,
    captures_in,
    compared_fields,
    expect_one,
    find,
    headline,
    matches,
    only_statement,
    parse_shape,
    refuse_unbound_captures,
    walk,
)
from agentcore_patches.edits.substitution import substitute


@dataclass(frozen=True)
class Land(Edit):
    """A module of agentcore-patch, added as a new file of the install."""

    text: str

    def describe(self) -> str:
        return "the module"

    @property
    def where(self) -> str:
        return "the install"

    def apply(self, source: bytes | None) -> bytes | None:
        """Return the source; None if the file has it, with any line endings."""
        wanted = self.text.encode()
        if source is None:
            return wanted
        if source.replace(b"\r\n", b"\n") != wanted:
            raise CannotPlace("there is another file of that name")
        return None


@dataclass(frozen=True)
class Import(Edit):
    """`from module import name` among the imports of a file, for its other edits."""

    module: str
    imported: str

    def describe(self) -> str:
        return f"import of `{self.imported}`"

    @property
    def text(self) -> str:
        """The added line, with its comment at the end."""
        return self.text_with()

    def text_with(self, *others: str) -> str:
        """Return the line that also imports other names of the module."""
        names = ", ".join(sorted([self.imported, *others]))
        comments = "".join(f"  {line}" for line in comment_lines(self.comment))
        return f"from {self.module} import {names}{comments}\n"


@dataclass(frozen=True)
class AddField(DefinitionEdit):
    """Declare one or more fields after the last one of a class.

    Attributes:
        declarations: the fields.
        native: how SGLang declares the same fields, in the releases that have them: the
            new declarations replace these.
    """

    declarations: str
    _: dataclasses.KW_ONLY
    native: str = ""

    def describe(self) -> str:
        try:
            names = [f"`{name}`" for name in self.fields]
        except InvalidEdit:
            names = [f"`{headline(self.declarations)}`"]
        return f"the field{'s' if len(names) > 1 else ''} {', '.join(names)}"

    @property
    def fields(self) -> tuple[str, ...]:
        return tuple(_declarations(self.declarations))

    @property
    def new_code(self) -> str:
        return self.declarations

    @property
    def shapes(self) -> tuple[str, ...]:
        return tuple(f"{name}: ..." for name in self.fields)

    def check(self) -> None:
        super().check()
        added = _declarations(self.declarations)
        if self.native and _declarations(self.native).keys() != added.keys():
            raise InvalidEdit("`native` does not declare the same fields")

    def apply(self, definition: Definition) -> Definition | None:
        declared = _declared_fields(definition)
        n_present, native_places = self._look_for(declared)
        n_fields = len(self.fields)
        if n_present == n_fields and not native_places:
            return None
        if n_present or len(native_places) not in (0, n_fields):
            raise CannotPlace("the class has some of these fields, but not all")
        if native_places:
            return self._replace_native(definition, native_places)
        if not declared:
            raise CannotPlace("the class declares no fields")
        new = _new_statements(self.declarations, self.comment)
        return insert_statements(definition, max(declared) + 1, new)

    def _look_for(
        self, declared: Mapping[int, cst.AnnAssign]
    ) -> tuple[int, dict[str, int]]:
        """Count the fields that a class has, and find its native ones."""
        added = _declarations(self.declarations)
        native = _declarations(self.native) if self.native else {}
        n_present = 0
        places: dict[str, int] = {}
        for index, existing in declared.items():
            target = existing.target
            name = target.value if isinstance(target, cst.Name) else ""
            if name not in added:
                continue
            if matches(added[name], existing):
                n_present += 1
            elif name in native.keys() - places and matches(native[name], existing):
                places[name] = index
            else:
                raise CannotPlace(
                    f"the class has another field of that name: `{code_of(existing)}`"
                )
        return n_present, places

    def _replace_native(
        self, definition: Definition, places: Mapping[str, int]
    ) -> Definition:
        fields = _parse_new(self.declarations).body
        for name, field in zip(self.fields, fields, strict=True):
            path: list[Step] = [("body", None), ("body", places[name])]
            new = field.with_changes(leading_lines=lines_above(self.comment))
            definition = _replace_line(definition, path, new)
        return definition


class Check(ScopedEdit):
    """Changes nothing; refuses sources in which the other edits would be wrong."""


@dataclass(frozen=True)
class RefuseDefinition(Check):
    """Refuse a file that has the definition of the scope."""

    def describe(self) -> str:
        return f"a check that there is no `{self.scope}`"


@dataclass(frozen=True)
class Expect(DefinitionEdit, Check):
    """Refuse a file without a definition, or a definition without a shape's statement."""

    shape: str = ""

    may_capture: ClassVar[tuple[str, ...]] = ("shape",)

    def describe(self) -> str:
        return f"a check that there is `{headline(self.shape) or self.scope}`"

    @property
    def shapes(self) -> tuple[str, ...]:
        return (self.shape,) if self.shape else ()

    def check(self) -> None:
        super().check()
        if self.shape:
            captures_in(parse_shape(self.shape))

    def apply(self, definition: Definition) -> None:
        if self.shape and not find(definition, parse_shape(self.shape)):
            raise CannotPlace("it was not found, so this is another release's file")


@dataclass(frozen=True)
class RefuseField(DefinitionEdit, Check):
    """Refuse a class that has one of some fields, which new code would write twice."""

    fields: tuple[str, ...]

    def describe(self) -> str:
        names = " or ".join(f"`{name}`" for name in self.fields)
        return f"a check that there is no field {names}"

    @property
    def shapes(self) -> tuple[str, ...]:
        return tuple(f"{name}: ..." for name in self.fields)

    def check(self) -> None:
        super().check()
        is_tuple = isinstance(self.fields, tuple)
        if (
            not self.fields
            or not is_tuple
            or not all(map(str.isidentifier, self.fields))
        ):
            raise InvalidEdit(f"{self.fields!r} is not a tuple of names")

    def apply(self, definition: Definition) -> None:
        for field in _declared_fields(definition).values():
            if code_of(field.target) in self.fields:
                raise CannotPlace(
                    f"the class has a field of that name: `{code_of(field)}`. SGLang "
                    "already returns this field, so the patch would write it twice"
                )


@dataclass(frozen=True)
class Decorate(DefinitionEdit):
    """Decorate a function, outside of its existing decorators."""

    decorator: str

    def describe(self) -> str:
        return f"decorator `@{self.decorator}`"

    @property
    def new_code(self) -> str:
        return self.decorator

    def check(self) -> None:
        super().check()
        _expression(self.decorator)

    def apply(self, definition: Definition) -> Definition | None:
        if not isinstance(definition, cst.FunctionDef):
            raise CannotPlace("it is a class, not a function")
        wanted = _expression(self.decorator)
        if any(
            matches(wanted, existing.decorator) for existing in definition.decorators
        ):
            return None
        new = cst.Decorator(wanted, leading_lines=lines_above(self.comment))
        return definition.with_changes(decorators=[new, *definition.decorators])


@dataclass(frozen=True)
class AddKeyword(DefinitionEdit):
    """Add a keyword argument to the only call of `function` in a scope.

    Attributes:
        function: the function as it is called there (`self.run`).
        argument: the argument (`ids=x.ids`).
    """

    function: str
    argument: str

    def describe(self) -> str:
        name = self.argument.partition("=")[0].strip()
        return f"argument `{name}=` of `{self.function}`"

    @property
    def new_code(self) -> str:
        return f"_(\n{indent(self.argument, '    ')}\n)"

    @property
    def shapes(self) -> tuple[str, ...]:
        return (self.function,)

    def check(self) -> None:
        super().check()
        _expression(self.function)
        self._argument()

    def apply(self, definition: Definition) -> Definition | None:
        argument = self._argument()
        function = _expression(self.function)
        calls = [
            path
            for path, node in walk(definition, compared_fields)
            if isinstance(node, cst.Call) and matches(function, node.func)
        ]
        expect_one(len(calls), f"a call of `{self.function}`")
        old = descend(definition, calls[0])
        assert isinstance(old, cst.Call)
        new = with_keyword(old, argument, self.comment)
        return None if new is None else replace(definition, calls[0], new)

    def _argument(self) -> cst.Arg:
        match _expression(self.new_code):
            case cst.Call(args=[argument]) if argument.keyword is not None:
                return argument
        raise InvalidEdit(f"`{headline(self.argument)}` is not one keyword argument")


@dataclass(frozen=True)
class Insert(DefinitionEdit):
    """Insert statements before or after the only statement of a shape.

    With neither `before` nor `after` they go to the start of the function.
    """

    code: str
    _: dataclasses.KW_ONLY
    before: str = ""
    after: str = ""

    may_capture: ClassVar[tuple[str, ...]] = ("code", "before", "after")

    def describe(self) -> str:
        where = (
            f"before `{headline(self.before)}`"
            if self.before
            else f"after `{headline(self.after)}`"
            if self.after
            else "at the start"
        )
        return f"`{headline(self.code)}` {where}"

    @property
    def new_code(self) -> str:
        return capture_names(self.code)

    @property
    def shapes(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.before, self.after, self.code)))

    def check(self) -> None:
        super().check()
        if self.before and self.after:
            raise InvalidEdit("it has both `before` and `after`")
        shape = self.before or self.after
        refuse_unbound_captures(
            _parse_new(self.code), parse_shape(shape) if shape else None
        )

    def apply(self, definition: Definition) -> Definition | None:
        shape = self.before or self.after
        if not shape:
            start = 1 if definition.get_docstring() is not None else 0
            return self._insert(definition, start, {})
        places = find(definition, parse_shape(shape))
        expect_one(len(places), f"`{headline(shape)}`")
        [((*block_path, (_, anchor)), captures)] = places
        assert anchor is not None
        position = anchor if self.before else anchor + 1
        block = self._insert(descend(definition, block_path), position, captures)
        return None if block is None else replace(definition, block_path, block)

    def _insert(self, block: NodeT, position: int, captures: Captures) -> NodeT | None:
        new = _new_statements(self.code, self.comment, captures)
        for start in range(len(statements_of(block)) - len(new) + 1):
            existing = statements_of(block)[start : start + len(new)]
            if all(map(matches, new, existing)):
                return None
        return insert_statements(block, position, new)


@dataclass(frozen=True)
class Replace(DefinitionEdit):
    """Replace the only simple statement of a shape with another one.

    Attributes:
        old: the shape.
        new: the statement that replaces it.
    """

    old: str
    new: str

    may_capture: ClassVar[tuple[str, ...]] = ("old", "new")

    def describe(self) -> str:
        return f"`{headline(self.new)}` in place of `{headline(self.old)}`"

    @property
    def new_code(self) -> str:
        return capture_names(self.new)

    @property
    def shapes(self) -> tuple[str, ...]:
        return (self.old, self.new)

    def check(self) -> None:
        super().check()
        for code in (self.old, self.new):
            if not isinstance(parse_shape(code), cst.SimpleStatementLine):
                raise InvalidEdit(f"`{headline(code)}` is not a simple statement")
        old, new = parse_shape(self.old), parse_shape(self.new)
        refuse_unbound_captures(new, old)
        if matches(old, new, {}):
            raise InvalidEdit(
                f"`{headline(self.new)}` has the shape of `{headline(self.old)}`, so "
                "that a second apply would replace it again"
            )

    def apply(self, definition: Definition) -> Definition | None:
        places = find(definition, parse_shape(self.old))
        replaced = find(definition, parse_shape(self.new))
        if not places and len(replaced) == 1:
            return None
        expect_one(len(places), f"`{headline(self.old)}`")
        if replaced:
            raise CannotPlace(
                f"`{headline(self.new)}` is already there, so a second apply could not "
                "tell them apart"
            )
        [(path, captures)] = places
        [new] = _new_statements(self.new, self.comment, captures)
        return _replace_line(definition, path, new)


@dataclass(frozen=True)
class AddCondition(DefinitionEdit):
    """Add a condition to the only `if` of a shape."""

    shape: str
    condition: str

    may_capture: ClassVar[tuple[str, ...]] = ("shape",)

    def describe(self) -> str:
        return f"`and {self.condition}` in `{headline(self.shape)}`"

    @property
    def new_code(self) -> str:
        return self.condition

    @property
    def shapes(self) -> tuple[str, ...]:
        return (self.shape,)

    def check(self) -> None:
        super().check()
        shape = parse_shape(self.shape)
        captures_in(shape)
        if not isinstance(shape, cst.If):
            raise InvalidEdit(f"`{headline(self.shape)}` is not an `if`")
        _expression(self.condition)

    def apply(self, definition: Definition) -> Definition | None:
        shape = parse_shape(self.shape)
        places = find(definition, shape)
        if not places and len(find(definition, self._with_condition(shape))) == 1:
            return None
        expect_one(len(places), f"`{headline(self.shape)}`")
        [(path, _)] = places
        old = descend(definition, path)
        assert isinstance(old, cst.If)
        above = [*old.leading_lines, *lines_above(self.comment)]
        new = self._with_condition(old).with_changes(leading_lines=above)
        return replace(definition, path, new)

    def _with_condition(self, statement: cst.CSTNode) -> cst.If:
        assert isinstance(statement, cst.If)
        parts = {"test": statement.test, "condition": _expression(self.condition)}
        [new] = substitute(cst.parse_module("if test and condition: ..."), parts).body
        assert isinstance(new, cst.If)
        return statement.with_changes(test=new.test)


@dataclass(frozen=True)
class AddMethod(ScopedEdit):
    """Define a method at the end of a class."""

    code: str

    def describe(self) -> str:
        return f"definition of `{self.method}`"

    @property
    def new_code(self) -> str:
        return self.code

    def check(self) -> None:
        super().check()
        if not self.method:
            raise InvalidEdit(f"`{headline(self.code)}` is not one function")

    @property
    def method(self) -> str:
        """The name of the method, empty if the code is not a method."""
        try:
            [function] = ast.parse(self.code).body
        except (ValueError, SyntaxError):
            return ""
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
        return function.name if isinstance(function, kinds) else ""

    @property
    def text(self) -> str:
        """The added source, with its comment and a blank line, not indented."""
        return "\n".join(["", *comment_lines(self.comment), self.code.strip("\n"), ""])


def _declared_fields(definition: Definition) -> dict[int, cst.AnnAssign]:
    return {
        index: field
        for index, statement in enumerate(definition.body.body)
        if (field := only_statement(statement, cst.AnnAssign)) is not None
    }


@cache
def _declarations(code: str) -> dict[str, cst.AnnAssign]:
    """Return the declared fields by name; raise InvalidEdit for any other code."""
    statements = _parse_new(code).body
    fields = {
        field.target.value: field
        for statement in statements
        if (field := only_statement(statement, cst.AnnAssign)) is not None
        and isinstance(field.target, cst.Name)
    }
    if len(fields) < len(statements):
        raise InvalidEdit(f"`{code}` does not declare fields")
    return fields


def _replace_line(
    definition: Definition, path: Sequence[Step], new: cst.BaseStatement
) -> Definition:
    """Replace a simple statement; its blank lines and comments stay."""
    old = descend(definition, path)
    assert isinstance(old, cst.SimpleStatementLine)
    assert isinstance(new, cst.SimpleStatementLine)
    new = new.with_changes(
        leading_lines=[*old.leading_lines, *new.leading_lines],
        trailing_whitespace=old.trailing_whitespace,
    )
    return replace(definition, path, new)


@cache
def _expression(code: str) -> cst.BaseExpression:
    try:
        return cst.parse_expression(code)
    except cst.ParserSyntaxError as error:
        raise InvalidEdit(
            f"`{headline(code)}` cannot be parsed as an expression: {error.message}"
        ) from error


@cache
def _parse_new(code: str) -> cst.Module:
    try:
        module = cst.parse_module(capture_names(code))
    except cst.ParserSyntaxError as error:
        raise InvalidEdit(
            f"`{headline(code)}` cannot be parsed as Python: {error.message}"
        ) from error
    if not module.body:
        raise InvalidEdit("its new code has no statement")
    return module


def _new_statements(
    code: str, comment: str = "", captures: Captures | None = None
) -> Sequence[cst.BaseStatement]:
    first, *rest = substitute(_parse_new(code), captures or {}).body
    assert isinstance(first, cst.SimpleStatementLine | cst.BaseCompoundStatement)
    return [first.with_changes(leading_lines=lines_above(comment)), *rest]
