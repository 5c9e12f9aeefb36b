"""Change a source like other tools: by `ast` and lines, without the code under test."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@cache
def tree(source: bytes) -> ast.Module:
    """Return the parsed source, which callers must not change."""
    return ast.parse(source)


def definition(source: bytes, scope: str) -> Definition:
    body = tree(source).body
    for name in scope.split("."):
        [found] = [n for n in body if isinstance(n, DEFINITIONS) and n.name == name]
        body = found.body
    return found


def definitions(node: ast.AST) -> list[Definition]:
    return [child for child in ast.walk(node) if isinstance(child, DEFINITIONS)]


def statements(source: bytes, within: ast.AST) -> list[ast.stmt]:
    """Return every statement that shares its lines with no other, in order."""
    lines = source.splitlines()
    return [
        node
        for node in ast.walk(within)
        if isinstance(node, ast.stmt)
        and node is not within
        and not lines[node.lineno - 1][: node.col_offset].strip()
        and not lines[node.lineno - 1].lstrip().startswith(b"elif ")
    ]


def extent(node: ast.stmt) -> tuple[int, int]:
    """Return a statement's first line, and the line after its last, from 0."""
    parts = [node, *getattr(node, "decorator_list", [])]
    assert node.end_lineno is not None
    return min(part.lineno for part in parts) - 1, node.end_lineno


def indentation(node: ast.stmt) -> bytes:
    return b" " * node.col_offset


def changed(
    source: bytes, node: ast.stmt, change: Callable[[list[bytes]], list[bytes]]
) -> bytes:
    lines = source.splitlines(keepends=True)
    start, end = extent(node)
    return b"".join([*lines[:start], *change(lines[start:end]), *lines[end:]])


def dropped(source: bytes, node: ast.stmt) -> bytes:
    """Replace a statement by `pass`."""
    return changed(source, node, lambda _: [indentation(node) + b"pass\n"])


def doubled(source: bytes, node: ast.stmt) -> bytes:
    return changed(source, node, lambda own: own * 2)


def wrapped(source: bytes, node: ast.stmt) -> bytes:
    opening = indentation(node) + b"if True:\n"
    return changed(source, node, lambda own: [opening, *(b"    " + one for one in own)])


def renamed(source: bytes, node: Definition) -> bytes:
    pattern = rb"\b(def|class) %s\b" % node.name.encode()
    new = rb"\g<0>_of_a_fork"
    return changed(
        source, node, lambda own: [re.sub(pattern, new, b"".join(own), count=1)]
    )


def substituted(source: bytes, node: ast.stmt, old: str, new: str) -> bytes:
    word = rf"\b{re.escape(old)}\b".encode()
    return changed(
        source, node, lambda own: [re.sub(word, new.encode(), b"".join(own))]
    )


def moved(source: bytes, node: ast.stmt, before: ast.stmt) -> bytes:
    """Move a statement before another one."""
    lines = source.splitlines(keepends=True)
    start, end = extent(node)
    place, _ = extent(before)
    taken = lines[start:end]
    if place >= end:
        return b"".join([*lines[:start], *lines[end:place], *taken, *lines[place:]])
    return b"".join([*lines[:place], *taken, *lines[place:start], *lines[end:]])


def with_lines(source: bytes, new: Iterable[tuple[int, bytes]]) -> bytes:
    """Insert new text before some lines, counted from 0."""
    lines = source.splitlines(keepends=True)
    for place, text in sorted(new, key=lambda pair: pair[0], reverse=True):
        lines.insert(place, text)
    return b"".join(lines)


def formatted(source: bytes, *settings: str) -> bytes:
    command = [sys.executable, "-m", "ruff", "format", "--isolated", "-"]
    for setting in settings:
        command += ["--config", setting]
    return subprocess.run(command, input=source, capture_output=True, check=True).stdout


def bound_names(node: ast.AST) -> set[str]:
    """Return the parameters and variables of a function."""
    names = {arg.arg for arg in ast.walk(node) if isinstance(arg, ast.arg)}
    return names | {
        name.id
        for name in ast.walk(node)
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
    }


def all_names(node: ast.AST) -> set[str]:
    """Return the names that a function and its inner functions read or bind."""
    names = {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
    handlers = {
        handler.name or ""
        for handler in ast.walk(node)
        if isinstance(handler, ast.ExceptHandler)
    }
    return names | handlers | bound_names(node)


def walk_scopes(source: bytes, scopes: Iterable[str]) -> Iterator[Definition]:
    """Return the definitions of dotted paths and those around them, each once."""
    prefixes = {
        ".".join(scope.split(".")[:depth])
        for scope in scopes
        for depth in range(1, scope.count(".") + 2)
    }
    for scope in sorted(prefixes):
        yield definition(source, scope)


def keeps_comments(old: bytes, new: bytes) -> bool:
    """True if `new` has all lines of `old` with a `#`, in order, ignoring margins."""
    lines = (line.strip() for line in new.splitlines())
    return all(line.strip() in lines for line in old.splitlines() if b"#" in line)


def undefined(source: bytes, node: Definition, name: str, suffix: str) -> bytes:
    """Rename an attribute where a class declares or stores it, and nowhere else."""
    lines = source.splitlines(keepends=True)
    places = []
    for one in ast.walk(node):
        match one:
            case ast.Attribute(value=ast.Name(id="self"), attr=attr, ctx=ast.Store()):
                if attr == name:
                    places.append((one.end_lineno or 0, one.end_col_offset or 0))
    for statement in ast.walk(node):
        match statement:
            case ast.AnnAssign(target=ast.Name(id=bound) as target):
                if bound == name:
                    end = target.end_lineno or 0, target.end_col_offset or 0
                    places.append(end)
    for line, column in sorted(places, reverse=True):
        text = lines[line - 1]
        lines[line - 1] = text[:column] + suffix.encode() + text[column:]
    source = b"".join(lines)
    for statement in node.body:
        if isinstance(statement, DEFINITIONS) and statement.name == name:
            source = renamed(source, statement)
    return source
