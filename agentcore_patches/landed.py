"""What the modules that land read of SGLang's objects, in the functions that hooks call."""

from __future__ import annotations

import ast
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from agentcore_patches.edits import DEFINITIONS, Edit, Land
from agentcore_patches.patches.files import LANDING

_CALL = re.compile(r"\bagentcore\.(\w+)\.(\w+)")


@dataclass(frozen=True)
class Read:
    """An attribute that a function reads.

    Attributes:
        module: path of the module below `sglang`.
        function: its name.
        owner: the file below `sglang` and the name of the class that has the attribute;
            None if it is one of `server_args`.
        attribute: its name.
    """

    module: str
    function: str
    owner: tuple[str, str] | None
    attribute: str


def reads(edits: Iterable[Edit]) -> Iterator[Read]:
    """What the functions that hooks call read, and those that these call in turn."""
    edits = list(edits)
    modules = {
        edit.file.removeprefix(f"{LANDING}/").removesuffix(".py"): _module(edit.text)
        for edit in edits
        if isinstance(edit, Land)
    }
    called = [
        found
        for edit in edits
        if not isinstance(edit, Land)
        for found in _CALL.findall(edit.new_code)
    ]
    for module, name in _reachable(modules, called):
        yield from _reads_of(modules[module], f"{LANDING}/{module}.py", name)


@dataclass(frozen=True)
class _Module:
    """A module: its definitions, and the file and name of each class it annotates with."""

    definitions: Mapping[str, ast.stmt]
    imported: Mapping[str, tuple[str, str]]


@cache
def _module(text: str) -> _Module:
    tree = ast.parse(text)
    definitions = {
        node.name: node for node in tree.body if isinstance(node, DEFINITIONS)
    }
    imported = {
        alias.asname or alias.name: (_file(node.module or ""), alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").startswith("sglang.")
        for alias in node.names
    }
    return _Module(definitions, imported)


def _file(module: str) -> str:
    return module.removeprefix("sglang.").replace(".", "/") + ".py"


def _reachable(
    modules: Mapping[str, _Module], called: Iterable[tuple[str, str]]
) -> Iterator[tuple[str, str]]:
    pending, seen = list(called), set()
    while pending:
        module, name = pending.pop()
        definition = (
            modules[module].definitions.get(name) if module in modules else None
        )
        if definition is None or (module, name) in seen:
            continue
        seen.add((module, name))
        yield module, name
        for node in ast.walk(definition):
            match node:
                case ast.Name(id=other):
                    pending.append((module, other))
                case ast.Attribute(value=ast.Name(id=other), attr=attribute):
                    pending.append((other, attribute))


def _reads_of(module: _Module, path: str, name: str) -> Iterator[Read]:
    for function in ast.walk(module.definitions[name]):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        arguments = function.args
        owners = {
            argument.arg: module.imported[name]
            for argument in (
                *arguments.posonlyargs,
                *arguments.args,
                *arguments.kwonlyargs,
            )
            if (name := _class_name(argument.annotation)) in module.imported
        }
        for owner, attribute in attributes(function, owners):
            yield Read(path, function.name, owners.get(owner), attribute)


def attributes(
    tree: ast.AST,
    owners: Container[str],
    context: type[ast.expr_context] = ast.Load,
) -> Iterator[tuple[str, str]]:
    """The attributes of `owners`, and of any `server_args`, that code reads, or stores."""
    nodes = list(ast.walk(tree))
    # `self.x += 1` reads it first.
    read = {node.target for node in nodes if isinstance(node, ast.AugAssign)}
    for node in nodes:
        if not isinstance(node, ast.Attribute):
            continue
        if (ast.Load if node in read else type(node.ctx)) is not context:
            continue
        match node.value:
            case ast.Name(id=name) if name in owners:
                yield name, node.attr
            case ast.Name(id="server_args") | ast.Attribute(attr="server_args"):
                yield "server_args", node.attr


def _class_name(annotation: ast.expr | None) -> str:
    """The class that an annotation names, alone or besides None; else empty."""
    match annotation:
        case ast.Name(id=name):
            return name
        case ast.BinOp(left=ast.Name(id=name), right=ast.Constant(value=None)):
            return name
    return ""
