"""Change and print syntax trees."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import wrap
from typing import TypeAlias, TypeGuard, TypeVar

import libcst as cst

from agentcore_patches.edits.matching import CannotPlace, Step, matches

Definition: TypeAlias = cst.ClassDef | cst.FunctionDef
NodeT = TypeVar("NodeT", bound=cst.CSTNode)

OWNER = "agentcore-patch"


def descend(node: cst.CSTNode, path: Iterable[Step]) -> cst.CSTNode:
    for name, index in path:
        value = getattr(node, name)
        node = value if index is None else value[index]
    return node


def replace(node: NodeT, path: Sequence[Step], new: cst.CSTNode) -> NodeT:
    if not path:
        return new  # type: ignore[return-value]
    (name, index), *rest = path
    value = getattr(node, name)
    if index is None:
        return node.with_changes(**{name: replace(value, rest, new)})
    children = list(value)
    children[index] = replace(children[index], rest, new)
    return node.with_changes(**{name: children})


def statements_of(node: cst.CSTNode) -> Sequence[cst.BaseStatement]:
    body = getattr(node, "body")  # noqa: B009 - every caller's node has one
    return body if isinstance(body, Sequence) else statements_of(body)


def insert_statements(
    node: NodeT, position: int, new: Sequence[cst.BaseStatement]
) -> NodeT:
    if isinstance(node, cst.SimpleStatementSuite):
        raise CannotPlace("its body is on the line of its header")
    if not isinstance(node, cst.IndentedBlock):
        return node.with_changes(body=insert_statements(node.body, position, new))  # type: ignore[attr-defined]
    return node.with_changes(body=[*node.body[:position], *new, *node.body[position:]])


def _append_argument(
    args: Sequence[cst.Arg],
    new: cst.Arg,
    opening: cst.BaseParenthesizableWhitespace,
    comment: str,
) -> list[cst.Arg]:
    """Add an argument to those of a call, in the same layout.

    `opening` is the whitespace between the parenthesis and the first one. Comments stay
    with the argument that they follow; the new one's is above it, unless it is first.
    """
    nothing = cst.SimpleWhitespace("")
    if not args:
        return [new.with_changes(whitespace_after_arg=nothing)]
    *most, last = args
    comma = last.comma if isinstance(last.comma, cst.Comma) else None
    closing = comma.whitespace_after if comma else last.whitespace_after_arg
    gap: cst.BaseParenthesizableWhitespace = cst.SimpleWhitespace(" ")
    if most:
        gap = most[-1].comma.whitespace_after  # type: ignore[union-attr]
    elif comma and _breaks(closing):
        gap = opening
    if _breaks(gap):
        gap = _bare(gap)
        if _breaks(closing):
            gap = gap.with_changes(
                first_line=closing.first_line, empty_lines=closing.empty_lines
            )
            closing = _bare(closing)
    if comment:
        gap = _commented(gap, comment)
    separator = (comma or cst.Comma()).with_changes(whitespace_after=gap)
    ending = cst.Comma(whitespace_after=closing) if comma else cst.MaybeSentinel.DEFAULT
    return [
        *most,
        last.with_changes(comma=separator, whitespace_after_arg=nothing),
        new.with_changes(
            comma=ending, whitespace_after_arg=nothing if comma else closing
        ),
    ]


def _breaks(
    whitespace: cst.BaseParenthesizableWhitespace,
) -> TypeGuard[cst.ParenthesizedWhitespace]:
    return isinstance(whitespace, cst.ParenthesizedWhitespace)


def _bare(whitespace: cst.ParenthesizedWhitespace) -> cst.ParenthesizedWhitespace:
    """Return a line break without the comments before it."""
    return whitespace.with_changes(
        first_line=cst.TrailingWhitespace(newline=whitespace.first_line.newline),
        empty_lines=[],
    )


def _commented(
    whitespace: cst.BaseParenthesizableWhitespace, comment: str
) -> cst.ParenthesizedWhitespace:
    if not _breaks(whitespace):
        margin = cst.SimpleWhitespace("    ")
        whitespace = cst.ParenthesizedWhitespace(indent=True, last_line=margin)
    lines = [
        line.with_changes(indent=whitespace.indent, whitespace=whitespace.last_line)
        for line in lines_above(comment)
    ]
    return whitespace.with_changes(empty_lines=[*whitespace.empty_lines, *lines])


def with_keyword(
    call: cst.Call, argument: cst.Arg, comment: str = ""
) -> cst.Call | None:
    """Add a keyword argument; None if the call has it. CannotPlace if it differs."""
    assert argument.keyword is not None
    for existing in call.args:
        if existing.keyword is not None and matches(existing.keyword, argument.keyword):
            if matches(argument, existing):
                return None
            raise CannotPlace(
                f"a call has another argument of that name: `{_argument_code(existing)}`"
            )
    args = list(call.args)
    if len(args) == 1 and isinstance(args[0].value, cst.GeneratorExp):
        args = [args[0].with_changes(value=parenthesized(args[0].value))]
    # What is unpacked stays the last.
    unpacked = args[-1:] if len(args) > 1 and args[-1].star == "**" else []
    named = args[: len(args) - len(unpacked)]
    named = _append_argument(named, argument, call.whitespace_before_args, comment)
    return call.with_changes(args=[*named, *unpacked])


def parenthesized(expression: NodeT) -> NodeT:
    if getattr(expression, "lpar", ()):
        return expression
    return expression.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])


def comment_lines(comment: str) -> list[str]:
    """Return the lines of the comment above a change, with its owner, name and reason.

    A reason that does not fit after the name gets its own line.
    """
    if not comment:
        return []
    name, _, reason = comment.partition(": ")
    texts = [f"{OWNER}: {comment}"]
    if reason and len(texts[0]) > _COMMENT_WIDTH:
        texts = [f"{OWNER}: {name}", reason]
    return [f"# {line}" for text in texts for line in _wrapped(text)]


def _wrapped(text: str) -> list[str]:
    return wrap(text, _COMMENT_WIDTH, break_on_hyphens=False)


def lines_above(comment: str) -> list[cst.EmptyLine]:
    return [cst.EmptyLine(comment=cst.Comment(line)) for line in comment_lines(comment)]


# With the deepest indentation of SGLang's code, no line has more than 88 characters.
_COMMENT_WIDTH = 66


def code_of(node: cst.CSTNode) -> str:
    return cst.Module([]).code_for_node(node).strip()


def _argument_code(argument: cst.Arg) -> str:
    """Return the source of an argument, without trailing comma and space."""
    nothing = cst.SimpleWhitespace("")
    alone = argument.with_changes(
        comma=cst.MaybeSentinel.DEFAULT, whitespace_after_arg=nothing
    )
    return code_of(alone)
