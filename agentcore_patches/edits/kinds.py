"""The kinds of edit: each finds a place in a definition and changes it."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, TypeAlias

from agentcore_patches.edits.base import DefinitionEdit, Edit, ScopedEdit
from agentcore_patches.edits.bindings import is_bound
from agentcore_patches.edits.matching import (
    Block,
    CannotPlace,
    InvalidEdit,
    blocks,
    capture_names,
    captures_in,
    expect_one,
    find,
    headline,
    matches,
    parse_shape,
    refuse_unbound_captures,
)
from agentcore_patches.edits.place import (
    Place,
    SourceFile,
    definitions,
    end_line,
    first_line,
)


@dataclass(frozen=True)
class Land(Edit):
    """A module of agentcore-patch, added as a new file of the install."""

    text: str

    def describe(self) -> str:
        return "the module"

    @property
    def where(self) -> str:
        return "the install"

    def land(self, source: bytes | None) -> bytes | None:
        """Return the source; None if the file has it, with any line endings."""
        wanted = self.text.encode()
        if source is None:
            return wanted
        if source.replace(b"\r\n", b"\n") != wanted:
            raise CannotPlace("there is another file of that name")
        return None


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

    def check(self) -> None:
        super().check()
        added = _declarations(self.declarations)
        if self.native and _declarations(self.native).keys() != added.keys():
            raise InvalidEdit("`native` does not declare the same fields")

    def change(self, place: Place) -> bool:
        body = place.node.body
        declared = _declared_fields(body)
        n_present, native_places = self._look_for(place)
        n_fields = len(self.fields)
        if n_present == n_fields and not native_places:
            return False
        if n_present or len(native_places) not in (0, n_fields):
            raise CannotPlace("the class has some of these fields, but not all")
        if not declared:
            raise CannotPlace("the class declares no fields")
        if not native_places:
            last = declared[-1]
            place.insert(place.below(last), last, *self.comment, self.declarations)
        # From the last one on, so that the places of the others stay.
        for native, code in sorted(native_places, key=lambda pair: -pair[0].lineno):
            place.replace(native, code, self.comment)
        return True

    def _look_for(self, place: Place) -> tuple[int, list[tuple[ast.AnnAssign, str]]]:
        """Count the fields that a class has; return its native ones with the new ones."""
        added = _declarations(self.declarations)
        native = _declarations(self.native) if self.native else {}
        n_present = 0
        places: list[tuple[ast.AnnAssign, str]] = []
        for existing in _declared_fields(place.node.body):
            name = place.text_of(existing.target)
            if name not in added:
                continue
            if matches(added[name], existing):
                n_present += 1
            elif name in native and matches(native[name], existing):
                code = ast.get_source_segment(self.declarations, added[name])
                places.append((existing, str(code)))
            else:
                raise CannotPlace(
                    "the class has another field of that name: "
                    f"`{place.text_of(existing)}`"
                )
        return n_present, places


class Check(ScopedEdit):
    """Changes nothing; refuses sources in which the other edits would be wrong."""


@dataclass(frozen=True)
class RefuseDefinition(Check):
    """Refuse a file that has the definition of the scope."""

    def describe(self) -> str:
        return f"a check that there is no `{self.scope}`"

    def apply(self, source: SourceFile) -> bool:
        *outer, name = self.scope.split(".")
        if definitions(source.body(outer), name):
            raise CannotPlace("it was found, so this is another release's file")
        return False


@dataclass(frozen=True)
class Expect(DefinitionEdit, Check):
    """Refuse a file without a definition, or a definition without a shape's statement."""

    shape: str = ""

    may_capture: ClassVar[tuple[str, ...]] = ("shape",)

    def describe(self) -> str:
        return f"a check that there is `{headline(self.shape) or self.scope}`"

    def check(self) -> None:
        super().check()
        if self.shape:
            parse_shape(self.shape)
            captures_in(self.shape)

    def change(self, place: Place) -> bool:
        if self.shape and not any(find(place.node, parse_shape(self.shape))):
            raise CannotPlace("it was not found, so this is another release's file")
        return False


@dataclass(frozen=True)
class RefuseField(DefinitionEdit, Check):
    """Refuse a class that has one of some fields, which new code would write twice."""

    fields: tuple[str, ...]

    def describe(self) -> str:
        names = " or ".join(f"`{name}`" for name in self.fields)
        return f"a check that there is no field {names}"

    def check(self) -> None:
        super().check()
        is_tuple = isinstance(self.fields, tuple)
        if (
            not self.fields
            or not is_tuple
            or not all(map(str.isidentifier, self.fields))
        ):
            raise InvalidEdit(f"{self.fields!r} is not a tuple of names")

    def change(self, place: Place) -> bool:
        for field in _declared_fields(place.node.body):
            if place.text_of(field.target) in self.fields:
                raise CannotPlace(
                    f"the class has a field of that name: `{place.text_of(field)}`. "
                    "SGLang already returns this field, so the patch would write it twice"
                )
        return False


@dataclass(frozen=True)
class AddParameter(DefinitionEdit):
    """Add a parameter with a default at the end of a function's parameters."""

    parameter: str

    def describe(self) -> str:
        return f"parameter `{self.parameter}`"

    @property
    def new_code(self) -> str:
        return f"def _({self.parameter}): ..."

    def check(self) -> None:
        super().check()
        self._parameters()

    def change(self, place: Place) -> bool:
        function = place.node
        if isinstance(function, ast.ClassDef):
            raise CannotPlace("it is a class, not a function")
        [(wanted, default)] = self._parameters()
        for existing, value in _parameters_of(function.args):
            if existing.arg == wanted.arg:
                if matches([wanted, default], [existing, value]):
                    return False
                text = place.text_of(existing)
                text += f"={place.text_of(value)}" if value else ""
                raise CannotPlace(
                    f"the function has another parameter of that name: `{text}`"
                )
        place.append(function, self.parameter, self.comment)
        return True

    def _parameters(self) -> list[_Parameter]:
        function = parse_shape(self.new_code)
        assert isinstance(function, ast.FunctionDef)
        found = _parameters_of(function.args)
        if len(found) != 1 or found[0][1] is None or function.args.kwarg:
            raise InvalidEdit(f"`{self.parameter}` is not one parameter with a default")
        return found


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

    def change(self, place: Place) -> bool:
        if isinstance(place.node, ast.ClassDef):
            raise CannotPlace("it is a class, not a function")
        wanted = _expression(self.decorator)
        if any(matches(wanted, existing) for existing in place.node.decorator_list):
            return False
        new = f"@{self.decorator}"
        top = first_line(place.node)
        place.insert(top, place.node, *self.comment, new, grows=True)
        return True


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
        return f"_({self.argument})"

    def check(self) -> None:
        super().check()
        _expression(self.function)
        self._argument()

    def change(self, place: Place) -> bool:
        argument = self._argument()
        function = _expression(self.function)
        calls = [
            node
            for node in ast.walk(place.node)
            if isinstance(node, ast.Call) and matches(function, node.func)
        ]
        expect_one(len(calls), f"a call of `{self.function}`")
        [call] = calls
        for existing in call.keywords:
            if existing.arg == argument.arg:
                if matches(argument, existing):
                    return False
                raise CannotPlace(
                    "a call has another argument of that name: "
                    f"`{place.text_of(existing)}`"
                )
        place.append(call, self.argument, self.comment)
        return True

    def _argument(self) -> ast.keyword:
        match _expression(self.new_code):
            case ast.Call(args=[], keywords=[argument]) if argument.arg is not None:
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

    def check(self) -> None:
        super().check()
        if self.before and self.after:
            raise InvalidEdit("it has both `before` and `after`")
        _parse_new(self.code)
        shape = self.before or self.after
        if shape:
            parse_shape(shape)
        refuse_unbound_captures(self.code, shape)

    def change(self, place: Place) -> bool:
        if shape := self.before or self.after:
            block, index, captures = place.find_one(shape)
            code = place.substituted(self.code, captures, block[index])
        else:
            block, code = place.node.body, self.code
            index = 1 if ast.get_docstring(place.node) is not None else 0
        new = _parse_new(code)
        for start in range(len(block) - len(new) + 1):
            if matches(new, block[start : start + len(new)]):
                return False
        line = place.below(block[index]) if self.after else place.above(block, index)
        place.insert(line, block[min(index, len(block) - 1)], *self.comment, code)
        return True


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

    def check(self) -> None:
        super().check()
        old, new = parse_shape(self.old), parse_shape(self.new)
        for code, statement in ((self.old, old), (self.new, new)):
            if any(blocks(statement)):
                raise InvalidEdit(f"`{headline(code)}` is not a simple statement")
        refuse_unbound_captures(self.new, self.old)
        if matches(old, new, {}):
            raise InvalidEdit(
                f"`{headline(self.new)}` has the shape of `{headline(self.old)}`, so "
                "that a second apply would replace it again"
            )

    def change(self, place: Place) -> bool:
        places = place.find(parse_shape(self.old))
        replaced = place.find(parse_shape(self.new))
        if not places and len(replaced) == 1:
            return False
        expect_one(len(places), f"`{headline(self.old)}`")
        if replaced:
            raise CannotPlace(
                f"`{headline(self.new)}` is already there, so a second apply could not "
                "tell them apart"
            )
        [(block, index, captures)] = places
        code = place.substituted(self.new, captures, block[index])
        place.replace(block[index], code, self.comment)
        return True


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

    def check(self) -> None:
        super().check()
        captures_in(self.shape)
        self._shape()
        _expression(self.condition)

    def change(self, place: Place) -> bool:
        shape = self._shape()
        places = place.find(shape)
        narrowed = [
            one for test in self._tests() for one in place.find(_if(shape, test))
        ]
        if not places and len(narrowed) == 1:
            return False
        expect_one(len(places), f"`{headline(self.shape)}`")
        [(block, index, _)] = places
        statement = block[index]
        assert isinstance(statement, ast.If)
        margin = place.margin(statement)
        start, end = place.span(statement.test)
        top, colon = place.span(statement)[0], place.colon_of(statement)
        condition = _in_parentheses(self.condition).replace("\n", f"\n{margin}")
        note = "".join(f"{line}\n{margin}" for line in self.comment)
        opening, closing = "", ""
        if _binds_less(statement.test) and "(" not in place.text(top, start):
            opening, closing = "(", ")"
        place.rewrite(
            (top, top, note),
            (start, start, opening),
            (end, end, closing),
            (colon, colon, f" and {condition}"),
        )
        return True

    def _shape(self) -> ast.If:
        shape = parse_shape(self.shape)
        if not isinstance(shape, ast.If):
            raise InvalidEdit(f"`{headline(self.shape)}` is not an `if`")
        return shape

    def _tests(self) -> list[ast.expr]:
        """The test with the condition; an `and` may have been in parentheses, or not."""
        test, condition = self._shape().test, _expression(self.condition)
        tests: list[ast.expr] = [ast.BoolOp(ast.And(), [test, condition])]
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
            tests.append(ast.BoolOp(ast.And(), [*test.values, condition]))
        return tests


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

    def apply(self, source: SourceFile) -> bool:
        body = source.definition(self.scope).body
        place = source.place(self.scope)
        if not isinstance(place.node, ast.ClassDef):
            raise CannotPlace("it is a function, not a class")
        if is_bound(self.method, body, self.code):
            return False
        last = place.node.body[-1]
        code = self.code.strip("\n")
        place.insert(end_line(last), last, "", *self.comment, code)
        return True


_Parameter: TypeAlias = tuple[ast.arg, ast.expr | None]


def _parameters_of(args: ast.arguments) -> list[_Parameter]:
    """Return the parameters of a function that have names, with their defaults."""
    positional = [*args.posonlyargs, *args.args]
    defaults = [None] * (len(positional) - len(args.defaults))
    return [
        *zip(positional, [*defaults, *args.defaults], strict=True),
        *zip(args.kwonlyargs, args.kw_defaults, strict=True),
    ]


def _declared_fields(body: Block) -> list[ast.AnnAssign]:
    return [statement for statement in body if isinstance(statement, ast.AnnAssign)]


@cache
def _declarations(code: str) -> Mapping[str, ast.AnnAssign]:
    """Return the declared fields by name; raise InvalidEdit for any other code."""
    statements = _parse_new(code)
    fields = {
        field.target.id: field
        for field in _declared_fields(statements)
        if isinstance(field.target, ast.Name)
    }
    if len(fields) < len(statements):
        raise InvalidEdit(f"`{code}` does not declare fields")
    return fields


def _if(shape: ast.If, test: ast.expr) -> ast.If:
    return ast.If(test, shape.body, shape.orelse)


def _binds_less(expression: ast.expr) -> bool:
    """True if an expression needs parentheses beside `and`."""
    return isinstance(expression, ast.BoolOp | ast.IfExp | ast.Lambda | ast.NamedExpr)


def _in_parentheses(code: str) -> str:
    expression = _expression(code)
    is_bare = not expression.col_offset and expression.lineno == 1
    return f"({code})" if is_bare and _binds_less(expression) else code


@cache
def _expression(code: str) -> ast.expr:
    try:
        return ast.parse(code, mode="eval").body
    except SyntaxError as error:
        raise InvalidEdit(
            f"`{headline(code)}` cannot be parsed as an expression: {error.msg}"
        ) from error


@cache
def _parse_new(code: str) -> Block:
    try:
        body = ast.parse(capture_names(code)).body
    except SyntaxError as error:
        raise InvalidEdit(
            f"`{headline(code)}` cannot be parsed as Python: {error.msg}"
        ) from error
    if not body:
        raise InvalidEdit("its new code has no statement")
    return body
