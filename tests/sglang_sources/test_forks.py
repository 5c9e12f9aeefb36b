"""Forks with extra code around every place, or another layout, are patched alike."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection
from functools import cache

import pytest

from agentcore_patches.patches import registry
from tests.helpers.planning import VERSION
from tests.sglang_sources import surgery
from tests.sglang_sources.releases import (
    DIFFERING,
    NAMES,
    hooks,
    patched,
    planned,
    scopes,
    sources,
)

Located = ast.expr | ast.arg | ast.keyword


Fork = Callable[[bytes, Collection[str]], bytes]
"""Changes a file, mainly in the scopes that edits change."""


@cache
def meaning(source: bytes) -> str:
    """Normalize a source: without layout, and without the additions of a fork."""
    return ast.dump(_WithoutForks().visit(ast.parse(source)))


class _WithoutForks(ast.NodeTransformer):
    """Remove everything named `fork_...`."""

    def visit_arguments(self, node: ast.arguments) -> ast.AST:
        # Defaults belong to the last parameters.
        first = len(node.args) - len(node.defaults)
        node.defaults = [
            default
            for arg, default in zip(node.args[first:], node.defaults, strict=True)
            if not _is_fork(arg)
        ]
        return self.generic_visit(node)

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for name, value in ast.iter_fields(node):
            if isinstance(value, list):
                setattr(node, name, [child for child in value if not _is_fork(child)])
        return super().generic_visit(node)


def _is_fork(node: object) -> bool:
    match node:
        case ast.Assign(targets=[ast.Name(id=name)]):
            pass
        case ast.AnnAssign(target=ast.Name(id=name)):
            pass
        case ast.FunctionDef(name=name) | ast.arg(arg=name) | ast.keyword(arg=name):
            pass
        case _:
            return False
    return name is not None and name.startswith("fork_")


def fork_statements(source: bytes, scopes: Collection[str]) -> bytes:
    """Add a statement and a comment before and after every statement of every place."""
    new: list[tuple[int, bytes]] = []
    for node in surgery.walk_scopes(source, scopes):
        for statement in surgery.statements(source, node):
            start, end = surgery.extent(statement)
            margin = surgery.indentation(statement)
            note = b"\n%s# A fork's own.\n%sfork_note = 0\n" % (margin, margin)
            is_docstring = isinstance(statement, ast.Expr) and isinstance(
                statement.value, ast.Constant
            )
            new += [(end, note)] if is_docstring else [(start, note), (end, note)]
    return surgery.with_lines(source, dict.fromkeys(new))


def fork_members(source: bytes, scopes: Collection[str]) -> bytes:
    """Add fields after the fields of every class, and methods between its methods."""
    new: list[tuple[int, bytes]] = []
    for node in surgery.walk_scopes(source, scopes):
        if not isinstance(node, ast.ClassDef):
            continue
        margin = surgery.indentation(node.body[0])
        field = b"%sfork_field: Optional[int] = None  # and so on\n" % margin
        method = b"\n%sdef fork_method(self, *args, **kwargs):\n" % margin
        method += b"%s    return self.fork(*args, return_data=1, **kwargs)\n\n" % margin
        for child in node.body:
            start, end = surgery.extent(child)
            if isinstance(child, ast.AnnAssign):
                new.append((end, field))
            elif isinstance(child, surgery.DEFINITIONS):
                new.append((start, method))
        new.append((surgery.extent(node)[1], method))
    return surgery.with_lines(source, new)


def fork_arguments(source: bytes, scopes: Collection[str]) -> bytes:
    """Add a parameter to every function, and an argument to every call."""
    offsets: set[tuple[int, int, str]] = set()
    for node in surgery.walk_scopes(source, scopes):
        if isinstance(node, ast.ClassDef):
            continue
        args = node.args.args
        if args and not node.args.kwonlyargs:
            parts: list[Located] = [args[-1], *node.args.defaults]
            # An annotation or a default ends the parameter.
            offsets.add((*_end(parts[-1]), ", fork_parameter=None"))
        for call in ast.walk(node):
            named = [k for k in getattr(call, "keywords", ()) if k.arg is not None]
            if isinstance(call, ast.Call) and named:
                offsets.add((*_end(named[-1]), ", fork_argument=(0)"))
    lines = source.splitlines(keepends=True)
    for line, column, text in sorted(offsets, reverse=True):
        old = lines[line - 1]
        lines[line - 1] = old[:column] + text.encode() + old[column:]
    return b"".join(lines)


def _end(node: Located) -> tuple[int, int]:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return node.end_lineno, node.end_col_offset


def unparsed(source: bytes, scopes: Collection[str]) -> bytes:
    """Rewrite a source without comments, with other quotes and line breaks."""
    return ast.unparse(ast.parse(source)).encode() + b"\n"


def formatted(*settings: str) -> Fork:
    """Format a source in another style."""
    return lambda source, scopes: surgery.formatted(source, *settings)


def all_of_these(source: bytes, scopes: Collection[str]) -> bytes:
    shorter = formatted("line-length=60")
    for fork in (fork_statements, fork_members, fork_arguments, shorter):
        source = fork(source, scopes)
    return source


LONG_LINES = (
    "line-length=200",
    "format.skip-magic-trailing-comma=true",
    "format.line-ending='cr-lf'",
)
FORKS: dict[str, Fork] = {
    "no comments, other quotes, long lines": unparsed,
    "long lines": formatted(*LONG_LINES),
    "all of these": all_of_these,
}


@pytest.mark.parametrize(
    ("fork", "version"),
    [
        *((fork, VERSION) for fork in FORKS),
        *(("all of these", version) for version in DIFFERING),
    ],
)
def test_a_fork_is_patched_like_the_release_and_keeps_its_own_code(
    fork: str, version: str
) -> None:
    forked = {
        file: FORKS[fork](source, scopes(version, file))
        for file, source in sources(version).items()
    }
    assert forked != sources(version)

    files = planned(forked, version).files
    assert tuple(files) == registry.files(NAMES, version)
    for file, text in hooks(files).items():
        assert meaning(text) == meaning(patched(version)[file])
        compile(text, file, "exec", dont_inherit=True)
        assert text.count(b"fork") == forked[file].count(b"fork")
        assert surgery.keeps_comments(forked[file], text)
    assert planned({**forked, **files}, version).files == {}
