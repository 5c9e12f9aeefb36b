"""The kinds of edit: what each looks for in a definition, and what it makes of it."""

from __future__ import annotations

import dataclasses
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from textwrap import indent
from typing import Any

import libcst as cst

from agentcore_patches.edits.cst_tools import (
    Definition,
    NodeT,
    append_item,
    code_of,
    comment_lines,
    descend,
    insert_statements,
    item_code,
    new_statements,
    operand,
    replace,
    statements_of,
    with_keyword,
)
from agentcore_patches.edits.matching import (
    Captures,
    Misplaced,
    compared_fields,
    count,
    find,
    matches,
    only_statement,
    parse_shape,
    parse_small,
    walk,
)


@dataclass(frozen=True)
class Edit(ABC):
    """One change of one definition.

    Attributes:
        file: path below `sglang`.
        scope: dotted path of the definition to change.
        note: why the change is there; becomes a comment above it where it lands.
        since, until: the first and the last SGLang release that it holds for; no limit
            if empty.
    """

    file: str
    scope: str
    _: dataclasses.KW_ONLY
    note: str = ""
    since: str = ""
    until: str = ""

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
        field = parse_small(self.declaration, cst.AnnAssign)
        statements = definition.body.body
        declared = {
            index: small
            for index, statement in enumerate(statements)
            if (small := only_statement(statement, cst.AnnAssign)) is not None
        }
        for existing in declared.values():
            if existing.target.deep_equals(field.target):
                if matches(field, existing):
                    return None
                raise Misplaced(f"it has another one: `{code_of(existing)}`")
        if not declared:
            raise Misplaced("the class declares no fields")
        new = new_statements(self.declaration, self.note)
        return insert_statements(definition, max(declared) + 1, new)


@dataclass(frozen=True)
class AddParameter(Edit):
    """Add a parameter with a default at the end of a function's parameters."""

    parameter: str

    def describe(self) -> str:
        return f"parameter `{self.parameter}`"

    def apply(self, definition: Definition) -> Definition | None:
        if not isinstance(definition, cst.FunctionDef):
            raise Misplaced("it is not a function")
        signature = new_statements(f"def _({self.parameter}): ...")[0]
        assert isinstance(signature, cst.FunctionDef)
        wanted = signature.params.params[0]
        params = definition.params
        for existing in (*params.posonly_params, *params.params, *params.kwonly_params):
            if existing.name.value == wanted.name.value:
                if matches(wanted, existing):
                    return None
                raise Misplaced(f"it has another one: `{item_code(existing)}`")
        # After `*args` or `*` only a keyword can have a default that nothing else takes.
        positional = isinstance(params.star_arg, cst.MaybeSentinel)
        kind = "params" if positional else "kwonly_params"
        opening = definition.whitespace_before_params
        items = append_item(getattr(params, kind), wanted, opening)
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
            for path, node in walk(definition, compared_fields)
            if isinstance(node, cst.Call) and matches(function, node.func)
        ]
        if not calls:
            raise Misplaced(f"`{self.function}` is not called there")
        changed: Definition | None = None
        for path in reversed(calls):  # The inner ones first: the outer ones move them.
            old = descend(changed or definition, path)
            assert isinstance(old, cst.Call)
            new = with_keyword(old, argument)
            if new is not None:
                changed = replace(changed or definition, path, new)
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
            f"before `{headline(self.before)}`"
            if self.before
            else f"after `{headline(self.after)}`"
            if self.after
            else "at the start"
        )
        return f"`{first_line}` {where}"

    def apply(self, definition: Definition) -> Definition | None:
        if not (self.before or self.after):
            start = 1 if definition.get_docstring() is not None else 0
            return self._insert(definition, start, {})
        places = find(definition, parse_shape(self.before or self.after))
        if len(places) != 1:
            raise Misplaced(count(places))
        [((*block_path, (_, anchor)), captures)] = places
        assert anchor is not None
        position = anchor if self.before else anchor + 1
        block = self._insert(descend(definition, block_path), position, captures)
        return None if block is None else replace(definition, block_path, block)

    def _insert(self, block: NodeT, position: int, captures: Captures) -> NodeT | None:
        """`block` with the new statements at `position`, None if it has them."""
        new = new_statements(self.code, self.note, captures)
        for start in range(len(statements_of(block)) - len(new) + 1):
            there = statements_of(block)[start : start + len(new)]
            if all(map(matches, new, there)):
                return None
        return insert_statements(block, position, new)


@dataclass(frozen=True)
class Replace(Edit):
    """Put another simple statement in the place of the one of a shape, or of `each`."""

    old: str
    new: str
    _: dataclasses.KW_ONLY
    each: bool = False

    def describe(self) -> str:
        return f"`{headline(self.new)}` for `{headline(self.old)}`"

    def apply(self, definition: Definition) -> Definition | None:
        places = find(definition, parse_shape(self.old))
        if not places:
            made = find(definition, parse_shape(self.new))
            if len(made) == 1 or (made and self.each):
                return None
        if not places or (len(places) > 1 and not self.each):
            raise Misplaced(count(places))
        for path, captures in places:
            old = descend(definition, path)
            [new] = new_statements(self.new, self.note, captures)
            assert isinstance(old, cst.SimpleStatementLine)
            assert isinstance(new, cst.SimpleStatementLine)
            # Blank lines and comments are the file's own, and stay.
            new = new.with_changes(
                leading_lines=[*old.leading_lines, *new.leading_lines],
                trailing_whitespace=old.trailing_whitespace,
            )
            definition = replace(definition, path, new)
        return definition


@dataclass(frozen=True)
class Narrow(Edit):
    """Let the one `if` of a shape hold only if `condition` holds too."""

    shape: str
    condition: str

    def describe(self) -> str:
        return f"`{self.condition}` in `{headline(self.shape)}`"

    def apply(self, definition: Definition) -> Definition | None:
        shape = parse_shape(self.shape)
        places = find(definition, shape)
        if not places and len(find(definition, self._narrowed(shape))) == 1:
            return None
        if len(places) != 1:
            raise Misplaced(count(places))
        [(path, _)] = places
        old = descend(definition, path)
        return replace(definition, path, self._narrowed(old))

    def _narrowed(self, statement: cst.CSTNode) -> cst.If:
        assert isinstance(statement, cst.If)
        condition = cst.parse_expression(self.condition)
        parts = [operand(part) for part in (statement.test, condition)]
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
        text = "\n".join([*comment_lines(self.note), source])
        return indent(f"\n{text}", "    ") if self.inside else f"{text}\n\n"


def headline(code: str) -> str:
    return code.splitlines()[0]
