"""Classes, functions and names of an installed SGLang, as their sources define them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

from agentcore_patches.edits import (
    DEFINITIONS,
    Edit,
    ScopedEdit,
    decode,
    parse,
)
from agentcore_patches.errors import SourceConflict

Read: TypeAlias = Callable[[str], bytes | None]
"""Return the text of a file by its path below `sglang`; None if it is missing."""

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef

_Definition: TypeAlias = ast.ClassDef | Function

# What the attributes begin with that come from a base class outside of SGLang; empty for
# bases without attributes.
_BASES: Mapping[str, str] = {
    **dict.fromkeys(
        ("ABC", "Enum", "Exception", "Generic", "NamedTuple", "Protocol", "object"), ""
    ),
    "BaseModel": "model_",
    "Struct": "__struct_",
}

_SERVER_ARGS = ("srt/server_args.py", "ServerArgs")


@dataclass(frozen=True)
class Found:
    """A definition, with its file below `sglang` and its dotted path there."""

    file: str
    name: str
    node: _Definition

    @property
    def function(self) -> Function | None:
        """The definition, if it is a function."""
        return None if isinstance(self.node, ast.ClassDef) else self.node


def parameters(function: Function) -> set[str]:
    """Names of a function's parameters."""
    of = function.args
    return {one.arg for one in (*of.posonlyargs, *of.args, *of.kwonlyargs)}


class Unresolved(SourceConflict):
    """An attribute cannot be looked up; the message names the unknown part."""


class Install:
    """The definitions of an install, parsed on demand, with what edits add to them."""

    def __init__(
        self, sources: Mapping[str, bytes], read: Read, edits: Iterable[Edit]
    ) -> None:
        self._sources = sources
        self._read = read
        self._edits = [edit for edit in edits if isinstance(edit, ScopedEdit)]
        self.text = cache(self._read_text)
        self.bases = cache(self._find_bases)
        self._members = cache(self._find_members)
        self._module = cache(self._parsed)
        self._imports = cache(lambda file: _imports_of(self._module(file), file))
        self._definitions = cache(lambda file: _definitions_of(self._module(file)))

    def find(self, file: str, name: str) -> Found | None:
        """Find a definition, also one that its module imports; None if there is none."""
        file, name = self.origin(file, name)
        node = self._definitions(file).get(name)
        return None if node is None else Found(file, name, node)

    def origin(self, file: str, name: str) -> tuple[str, str]:
        """Follow the imports of a name to the file that should define it."""
        if name not in self._definitions(file):
            for path, original in self._imports(file).get(name, ()):
                for one in (path, path.removesuffix(".py") + "/__init__.py"):
                    if self.text(one) is not None and (one, original) != (file, name):
                        return self.origin(one, original)
        return file, name

    def has_name(self, file: str, name: str) -> bool:
        """True if a module assigns or imports a name."""
        return name in _assigned(self._module(file).body) or name in self._imports(file)

    def has_attribute(self, owner: Found, attribute: str) -> bool:
        """True if a class, or one of its bases, declares or assigns an attribute.

        Raises:
            Unresolved: a base that may have it cannot be looked up.
        """
        if hasattr(object, attribute):
            return True
        unknown = []
        for name, base in self.bases(owner):
            if base is None:
                if comes_with(name, attribute):
                    return True
                if name not in _BASES:
                    unknown.append(name)
            elif not self._members(base).isdisjoint((attribute, "__getattr__")):
                return True
        if unknown:
            raise Unresolved(
                f"`{attribute}` of `{owner.name}`, whose base `{unknown[0]}` cannot be "
                f"looked up from {owner.file}"
            )
        return False

    def is_closed(self, owner: Found) -> bool:
        """True if objects of a class have no `__dict__`."""
        classes = self.classes(owner)
        if ("Struct", None) in self.bases(owner):
            return not any(_has_option(one, "dict") for one in classes)
        return all(
            _has_option(one, "slots") or "__slots__" in _assigned(one.body)
            for one in classes
        )

    def is_frozen(self, owner: Found) -> bool:
        """True if attributes of objects of a class cannot be stored."""
        return any(_has_option(one, "frozen") for one in self.classes(owner))

    def needed_fields(self, owner: Found) -> list[str]:
        """The fields that a class of fields declares without a value."""
        has_value: dict[str, bool] = {}
        for one in reversed(self.classes(owner)):
            for statement in one.body:
                match statement:
                    case ast.AnnAssign(target=ast.Name(id=name), annotation=kind):
                        is_field = "ClassVar" not in ast.unparse(kind)
                        has_value[name] = not is_field or _is_value(statement.value)
        return [name for name, found in has_value.items() if not found]

    def classes(self, owner: Found) -> list[ast.ClassDef]:
        """The definitions of a class and of those of its bases that are SGLang's."""
        nodes = [base.node for _, base in self.bases(owner) if base is not None]
        return [node for node in nodes if isinstance(node, ast.ClassDef)]

    def method(self, owner: Found, name: str) -> Found | None:
        """Find a method in a class or one of its bases."""
        for _, base in self.bases(owner):
            if base is not None:
                found = self.find(base.file, f"{base.name}.{name}")
                if found is not None and found.function:
                    return found
        return None

    def _find_bases(self, owner: Found) -> list[tuple[str, Found | None]]:
        """Return a class and its bases, each by its name; None if it cannot be found."""
        found: list[tuple[str, Found | None]] = [(owner.name, owner)]
        for _, one in found:
            if one is None or not isinstance(one.node, ast.ClassDef):
                continue
            names = [_base_name(base) for base in one.node.bases]
            if (one.file, one.name) == _SERVER_ARGS:
                names += self._fields_of_server_args()
            for name in names:
                base = name.rpartition(".")[2], self.find(one.file, name)
                if base not in found:
                    found.append(base)
        return found

    def _fields_of_server_args(self) -> Iterator[str]:
        """Yield the classes whose fields `ServerArgs` gets at run time, from 0.5.21 on."""
        for name, places in self._imports(_SERVER_ARGS[0]).items():
            if places[0][0].startswith("srt/arg_groups/fields/"):
                yield name

    def _find_members(self, owner: Found) -> set[str]:
        """Return the names that a class declares or assigns, or gets by edits."""
        members = {*_members_of(owner.node)}
        for edit in self._edits:
            scopes = (owner.name, f"{owner.name}.__init__")
            if edit.file == owner.file and edit.scope in scopes:
                members |= _members_of_edit(edit)
        return members

    def _parsed(self, file: str) -> ast.Module:
        return parse(self.text(file) or "", file)

    def _read_text(self, file: str) -> str | None:
        text = self._sources[file] if file in self._sources else self._read(file)
        return None if text is None else decode(text, file)[0]


def _imports_of(module: ast.Module, file: str) -> Mapping[str, list[tuple[str, str]]]:
    """Paths of the modules that names are imported from, with their names there."""
    found: dict[str, list[tuple[str, str]]] = {}
    for node in statements(module.body):
        path = _path_of(node, file) if isinstance(node, ast.ImportFrom) else None
        if path is not None:
            assert isinstance(node, ast.ImportFrom)
            for alias in node.names:
                name = alias.asname or alias.name
                found.setdefault(name, []).append((path, alias.name))
    return found


def _definitions_of(module: ast.Module) -> Mapping[str, _Definition]:
    """Return the classes, functions and methods of a module by their dotted paths.

    Of two definitions of one name, it is the first.
    """
    found: dict[str, _Definition] = {}
    pending = [("", node) for node in _defined(module.body)]
    for outer, node in pending:
        name = f"{outer}{node.name}"
        if name not in found:
            found[name] = node
            if isinstance(node, ast.ClassDef):
                pending += [(f"{name}.", inner) for inner in _defined(node.body)]
    return found


@cache
def _members_of_edit(edit: ScopedEdit) -> frozenset[str]:
    return _members_of(ast.parse(edit.new_code))


def _members_of(node: ast.ClassDef | Function | ast.Module) -> frozenset[str]:
    """Names that the code of a class declares, defines, or stores on `self`."""
    defined = (one.name for one in _defined(node.body))
    return frozenset((*defined, *_assigned(node.body), *_stored(node.body)))


def statements(body: Iterable[ast.AST]) -> list[ast.AST]:
    """Return the statements of a block and its inner blocks; `ast.walk` is slower."""
    pending = [*body]
    for node in pending:
        for block in ("body", "handlers", "orelse", "finalbody", "cases"):
            pending += getattr(node, block, ())
    return pending


def _defined(body: Iterable[ast.stmt]) -> Iterator[_Definition]:
    """The definitions of a block, including the ones under an `if` or a `try`."""
    for node in body:
        if isinstance(node, DEFINITIONS):
            yield node
        elif isinstance(node, ast.If):
            yield from _defined([*node.body, *node.orelse])
        elif isinstance(node, ast.Try):
            yield from _defined([*node.body, *node.orelse])
            for handler in node.handlers:
                yield from _defined(handler.body)


def _assigned(body: Iterable[ast.stmt]) -> Iterator[str]:
    """Names that the statements of a block declare or assign."""
    for statement in body:
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.Assign(targets=targets):
                yield from (t.id for t in targets if isinstance(t, ast.Name))


def _stored(body: Iterable[ast.stmt]) -> Iterator[str]:
    """Names of the attributes that the code of a class stores on `self`."""
    for statement in statements(body):
        match statement:
            case ast.Assign(targets=found):
                pass
            case ast.AnnAssign(target=target) | ast.AugAssign(target=target):
                found = [target]
            case _:
                continue
        for node in (node for target in found for node in ast.walk(target)):
            match node:
                case ast.Attribute(ast.Name("self"), attribute, ast.Store()):
                    yield attribute


def _has_option(definition: ast.ClassDef, name: str) -> bool:
    """True if a class has an option such as `frozen=True`, of its base or decorator."""
    calls = [one for one in definition.decorator_list if isinstance(one, ast.Call)]
    options = [*definition.keywords, *(k for call in calls for k in call.keywords)]
    return any(
        option.arg == name
        and isinstance(option.value, ast.Constant)
        and option.value.value is True
        for option in options
    )


def comes_with(base: str, attribute: str) -> bool:
    """True if a base class outside of SGLang brings an attribute."""
    start = _BASES.get(base)
    return bool(start) and attribute.startswith(str(start))


def _base_name(base: ast.expr) -> str:
    return ast.unparse(base.value if isinstance(base, ast.Subscript) else base)


def _path_of(node: ast.ImportFrom, file: str) -> str | None:
    """Return the path below `sglang` of the module that names are imported from."""
    module = (node.module or "").split(".")
    if node.level:
        folders = file.split("/")[: -node.level]
        return "/".join([*folders, *module]) + ".py"
    return "/".join(module[1:]) + ".py" if module[0] == "sglang" else None


def is_property(function: Function) -> bool:
    """True if a function is read as an attribute."""
    return any(
        ast.unparse(decorator).rpartition(".")[2] in ("property", "cached_property")
        for decorator in function.decorator_list
    )


def is_coroutine(function: Function) -> bool:
    """True if a call of a function must be awaited; an async generator is iterated."""
    if not isinstance(function, ast.AsyncFunctionDef):
        return False
    pending: list[ast.AST] = [*function.body]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Yield):
            return False
        if not isinstance(node, (*DEFINITIONS, ast.Lambda)):
            pending += ast.iter_child_nodes(node)
    return True


def _is_value(default: ast.expr | None) -> bool:
    """False for a field without a default, also for `Field(...)`."""
    match default:
        case ast.Call(args=[ast.Constant(value=first), *_]):
            return first is not ...
    return default is not None
