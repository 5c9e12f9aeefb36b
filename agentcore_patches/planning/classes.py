"""Classes and modules of an installed SGLang, as their sources define them."""

from __future__ import annotations

import ast
import re
from collections.abc import (
    Callable,
    Container,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TypeAlias

from agentcore_patches.edits import (
    DEFINITIONS,
    AddField,
    AddMethod,
    AddParameter,
    Edit,
    Insert,
    ScopedEdit,
    decode,
    parse,
)
from agentcore_patches.errors import SourceConflict

SERVER_ARGS = "srt/server_args.py"

Read: TypeAlias = Callable[[str], bytes | None]
"""Return the text of a file by its path below `sglang`; None if it is missing."""

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef

# Attributes of objects whose base class is outside of SGLang.
_BASES: Mapping[str, Callable[[str], bool]] = {
    **dict.fromkeys(
        ("ABC", "Enum", "Exception", "Generic", "NamedTuple", "Protocol", "object"),
        lambda attribute: False,
    ),
    "BaseModel": lambda attribute: attribute.startswith("model_"),
    "Struct": lambda attribute: attribute.startswith("__struct_"),
}


@dataclass(frozen=True)
class Class:
    """A class, or another definition, by its file below `sglang` and its name."""

    file: str
    name: str


class Unresolved(SourceConflict):
    """An attribute cannot be looked up; the message names the unknown part."""


class Install:
    """The classes of an install, parsed on demand."""

    def __init__(
        self, sources: Mapping[str, bytes], read: Read, edits: Iterable[Edit]
    ) -> None:
        self._sources = sources
        self._edits = list(edits)
        self._members = cache(self._find_members)
        self._of_self = cache(self._find_of_self)
        self._text = cache(self._read_text)
        self._imports = cache(self._find_imports)
        self._module = cache(self._parsed)
        self._find = cache(self._find_definition)
        self.class_around = cache(self._class_around)
        self._read = read

    def has_file(self, file: str) -> bool:
        """True if the install has a file."""
        return self._text(file) is not None

    def text(self, file: str) -> str:
        """The text of a file, empty if there is none."""
        return self._text(file) or ""

    def _class_around(self, edit: Edit) -> str:
        """Return the innermost class around an edit's code; empty if there is none."""
        if not isinstance(edit, ScopedEdit):
            return ""
        parts = edit.scope.split(".")
        for depth in range(len(parts), 0, -1):
            name = ".".join(parts[:depth])
            if self.definition(Class(edit.file, name)) is not None:
                return name
        return ""

    def definition(self, wanted: Class) -> ast.ClassDef | None:
        """Return a class from the file that defines it; None if it does not."""
        found = self._find(wanted.file, wanted.name)
        return found if isinstance(found, ast.ClassDef) else None

    def defined(self, wanted: Class) -> Class | None:
        """Find the definition of a class; None if it cannot be found."""
        found = self.origin(wanted)
        return None if self.definition(found) is None else found

    def origin(self, wanted: Class) -> Class:
        """Follow the imports of a name to the module that should define it."""
        if self._find(wanted.file, wanted.name) is not None:
            return wanted
        imported = self._imported(wanted.file, wanted.name)
        return wanted if imported in (None, wanted) else self.origin(imported)

    def has_name(self, file: str, name: str) -> bool:
        """True if a module binds a name at its top level."""
        pattern = (
            rf"(?m)^(?:(?:async )?def|class) {name}\b|^{name}\b\s*[:=]"
            rf"|^(?:from|import)\b[^#]*?\b{name}\b"
        )
        text = self._text(file)
        if text is None:
            return False
        return bool(re.search(pattern, text)) or self._imported(file, name) is not None

    def has_attribute(self, owner: Class, attribute: str) -> bool:
        """True if a class, or one of its bases, declares or assigns an attribute.

        Raises:
            Unresolved: a base that may have it cannot be looked up.
        """
        if owner == Class(SERVER_ARGS, "ServerArgs"):
            return self.has_server_arg(attribute, "")
        if hasattr(object, attribute):
            return True
        unknown = []
        for name, base in self._with_bases(owner):
            if base is None:
                known = _BASES.get(name)
                if known is None:
                    unknown.append(name)
                elif known(attribute):
                    return True
            elif attribute in (members := self._members(base)) or (
                "__getattr__" in members
            ):
                return True
        if unknown:
            raise Unresolved(
                f"`{attribute}` of `{owner.name}`, whose base `{unknown[0]}` cannot be "
                f"looked up from {owner.file}"
            )
        return False

    def is_closed(self, owner: Class) -> bool:
        """True if objects of a class have no `__dict__`."""
        found = self._found_bases(owner)
        if self._has_outer_base(owner, "Struct"):
            return not any(_has_option(one, "dict") for one in found)
        return bool(found) and all(
            _has_option(one, "slots")
            or any(name == "__slots__" for name in _assigned(one.body))
            for one in found
        )

    def is_frozen(self, owner: Class) -> bool:
        """True if attributes of objects of a class cannot be stored."""
        return any(_has_option(one, "frozen") for one in self._found_bases(owner))

    def fields(self, owner: Class) -> Mapping[str, bool]:
        """The fields of a dataclass or model; True for those that have no default."""
        found = self._found_bases(owner)
        is_made_of_fields = any(map(_is_dataclass, found)) or self._has_outer_base(
            owner, "BaseModel", "Struct"
        )
        fields: dict[str, bool] = {}
        for one in reversed(found) if is_made_of_fields else ():
            fields.update(_fields(one))
        return fields

    def _has_outer_base(self, owner: Class, *names: str) -> bool:
        """True if a base of a class that is not SGLang's has one of these names."""
        return any(
            base is None and name in names for name, base in self._with_bases(owner)
        )

    def _found_bases(self, owner: Class) -> list[ast.ClassDef]:
        """The definitions of a class and of those of its bases that are SGLang's."""
        found = [base for _, base in self._with_bases(owner) if base is not None]
        return [one for base in found if (one := self.definition(base)) is not None]

    def method(self, owner: Class, name: str) -> tuple[Class, Function] | None:
        """Find a method, and its place, in a class or one of its bases."""
        for _, base in self._with_bases(owner):
            if base is None:
                continue
            place = Class(base.file, f"{base.name}.{name}")
            found = self._find(place.file, place.name)
            if isinstance(found, Function):
                return place, found
        return None

    def function(self, wanted: Class) -> Function | None:
        """Find a function by its file and dotted path; None if there is none."""
        place = self.origin(wanted)
        found = self._find(place.file, place.name)
        return found if isinstance(found, Function) else None

    def added_parameters(self, wanted: Class) -> set[str]:
        """Names of the parameters that edits add to a function."""
        return {
            edit.parameter.partition(":")[0].partition("=")[0].strip()
            for edit in self._edits
            if isinstance(edit, AddParameter) and Class(edit.file, edit.scope) == wanted
        }

    @cached_property
    def added(self) -> frozenset[str]:
        """Names of the attributes that edits add to any class."""
        return frozenset(
            name
            for edit in self._edits
            if isinstance(edit, AddField | Insert)
            and self.class_around(edit) == edit.scope
            for name in (
                edit.fields if isinstance(edit, AddField) else _declared_by(edit)
            )
        )

    def has_server_arg(self, attribute: str, file: str) -> bool:
        """True if `ServerArgs` has an attribute, or the old code of a file reads it.

        Raises:
            Unresolved: there is no `ServerArgs`.
        """
        names = self._server_args
        if names is None:
            raise Unresolved(
                f"`server_args.{attribute}`, but the install has no {SERVER_ARGS}"
            )
        around = f"server_args.{attribute}"
        return attribute in names or bool(
            file
            and around in self.text(file)
            and re.search(rf"\b{around}\b", self.text(file))
        )

    @cached_property
    def _server_args(self) -> frozenset[str] | None:
        """Names that `ServerArgs`, and modules that declare fields for it, define.

        None: there is no such file.
        """
        text = self._text(SERVER_ARGS)
        if text is None:
            return None
        found = re.search(_SERVER_ARGS_CLASS, text)
        declaring = [
            self.text(module.replace(".", "/") + ".py")
            for module in re.findall(_SERVER_ARGS_FIELDS, text)
        ]
        text = "\n".join([found[0] if found else "", *declaring])
        return frozenset(
            name for names in _SERVER_ARGS_NAMES.findall(text) for name in names if name
        )

    def _with_bases(self, owner: Class) -> Iterator[tuple[str, Class | None]]:
        """Yield a class and its bases, each by its name; None if it cannot be found."""
        pending: list[tuple[str, Class | None]] = [(owner.name, self.defined(owner))]
        seen = set()
        while pending:
            name, found = pending.pop(0)
            if (name, found) in seen:
                continue
            seen.add((name, found))
            yield name, found
            if found is None:
                continue
            definition = self.definition(found)
            assert definition is not None
            pending += [self._base(found.file, base) for base in definition.bases]

    def _base(self, file: str, base: ast.expr) -> tuple[str, Class | None]:
        if isinstance(base, ast.Subscript):
            base = base.value
        if isinstance(base, ast.Attribute):
            return base.attr, None
        if not isinstance(base, ast.Name):
            return ast.unparse(base), None
        return base.id, self.defined(Class(file, base.id))

    def _imported(self, file: str, name: str) -> Class | None:
        """Find the class that a name is imported as, anywhere in a module."""
        for path, original in self._imports(file).get(name, ()):
            for one in (path, path.removesuffix(".py") + "/__init__.py"):
                if self.has_file(one):
                    return Class(one, original)
        return None

    def _find_imports(self, file: str) -> Mapping[str, list[tuple[str, str]]]:
        return _imports_of(self._module(file), file)

    def _find_definition(self, file: str, scope: str) -> ast.stmt | None:
        body = self._module(file).body
        found: ast.stmt | None = None
        for part in scope.split("."):
            found = next((node for node in _defined(body) if node.name == part), None)
            if found is None:
                return None
            body = found.body
        return found

    def uses_itself(self, owner: Class, attribute: str) -> bool:
        """True if the old code of a class uses an attribute of `self`."""
        return attribute in self._of_self(owner)

    def _find_of_self(self, owner: Class) -> Mapping[str, bool]:
        definition = self.definition(owner)
        return {} if definition is None else _used_of_self(definition)

    def _find_members(self, owner: Class) -> set[str]:
        """Return the names that a class declares or assigns, or gets by edits."""
        definition = self.definition(owner)
        assert definition is not None
        members = {name for name, stored in self._of_self(owner).items() if stored}
        members |= {*_assigned(definition.body)}
        members |= {node.name for node in _defined(definition.body)}
        for edit in self._edits:
            if edit.file == owner.file and self.class_around(edit) == owner.name:
                members |= _added_by(edit)
                if isinstance(edit, Insert) and edit.scope == owner.name:
                    members |= _declared_by(edit)
        return members

    def _parsed(self, file: str) -> ast.Module:
        return parse(self.text(file), file)

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


@cache
def _added_by(edit: Edit) -> frozenset[str]:
    """Attributes that an edit adds to its class."""
    # Outside a constructor, the class must have what an edit stores.
    makes = isinstance(edit, ScopedEdit) and edit.scope.endswith("__init__")
    stored = attributes(edit.new_code, ast.Store) if makes else ()
    added = {name for owner, name in stored if owner == "self"}
    if isinstance(edit, AddField):
        added |= {*edit.fields}
    if isinstance(edit, AddMethod):
        added.add(edit.method)
    return frozenset(added)


@cache
def _declared_by(edit: Insert) -> frozenset[str]:
    """Names that the statements of an insertion declare or assign."""
    return frozenset(_assigned(ast.parse(edit.code).body))


def statements(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield the statements of a block and of its inner blocks; `ast.walk` is slower."""
    for node in body:
        yield node
        for block in ("body", "handlers", "orelse", "finalbody", "cases"):
            yield from statements(getattr(node, block, ()))


def _defined(body: Iterable[ast.stmt]) -> Iterator[ast.ClassDef | Function]:
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


def _is_dataclass(definition: ast.ClassDef) -> bool:
    return any(
        re.match(r"(dataclasses\.)?dataclass\b", ast.unparse(one))
        for one in definition.decorator_list
    )


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


def _fields(definition: ast.ClassDef) -> Iterator[tuple[str, bool]]:
    """The fields that a class declares; True for those that have no default."""
    for statement in definition.body:
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=kind, value=value):
                if "ClassVar" not in ast.unparse(kind):
                    yield name, _is_required(value)
            case ast.Assign(targets=[ast.Name(id=name)]):
                yield name, False


def _is_required(value: ast.expr | None) -> bool:
    """True if the default of a field says that it has none."""
    match value:
        case None:
            return True
        case ast.Call(func=ast.Name(id=made) | ast.Attribute(attr=made)) if made in (
            "field",
            "Field",
        ):
            defaults = [
                k for k in value.keywords if (k.arg or "").startswith("default")
            ]
            defaults += [k for k in value.keywords if k.arg in ("init", None)]
            is_open = not value.args or ast.unparse(value.args[0]) == "..."
            return is_open and not defaults
    return False


def _used_of_self(definition: ast.ClassDef) -> Mapping[str, bool]:
    """The attributes of `self` that the code of a class uses; True if it stores one."""
    found: dict[str, bool] = {}
    pending: list[ast.AST] = [definition]
    while pending:
        node = pending.pop()
        if type(node) is ast.Attribute and type(node.value) is ast.Name:
            if node.value.id == "self":
                is_stored = type(node.ctx) is ast.Store
                found[node.attr] = is_stored or found.get(node.attr, False)
            continue
        # `ast.walk` takes four times as long.
        for field in node._fields:
            child = getattr(node, field)
            if type(child) is list:
                pending += [one for one in child if isinstance(one, ast.AST)]
            elif isinstance(child, ast.AST) and type(child) not in _LEAVES:
                pending.append(child)
    return found


_LEAVES = (ast.Name, ast.Constant, ast.Load, ast.Store)


_SERVER_ARGS_NAMES = re.compile(
    r"(?m)^(?:    |\t)(?:(?:async )?def )?(\w+)\b\s*[:=(]"
    r"|\bself\.(\w+)\s*(?::[^=\n]+)?=(?!=)"
)

_SERVER_ARGS_CLASS = re.compile(
    r"^class ServerArgs\b.*?(?=^(?:class|def|@|[A-Za-z_]\w*\s*=)|\Z)",
    re.MULTILINE | re.DOTALL,
)

_SERVER_ARGS_FIELDS = re.compile(
    r"^from sglang\.(srt\.arg_groups\.fields\.\w+) import", re.MULTILINE
)


def _path_of(node: ast.ImportFrom, file: str) -> str | None:
    """Return the path below `sglang` of the module that names are imported from."""
    module = (node.module or "").split(".")
    if node.level:
        folders = file.split("/")[: -node.level]
        return "/".join([*folders, *module]) + ".py"
    return "/".join(module[1:]) + ".py" if module[0] == "sglang" else None


HELD: Mapping[str, Class] = {
    "server_args": Class(SERVER_ARGS, "ServerArgs"),
    "tokenizer_manager": Class("srt/managers/tokenizer_manager.py", "TokenizerManager"),
}
"""Classes of variables and attributes, by name."""


@cache
def attributes(
    code: str, context: type[ast.expr_context]
) -> tuple[tuple[str, str], ...]:
    """Return the attributes of names, and of objects in `HELD`, that code uses.

    Args:
        context: `ast.Load` for those that are read, `ast.Store` for those that are stored.
    """
    if "." not in code:
        return ()
    nodes = list(ast.walk(ast.parse(code)))
    # `self.x += 1` reads it first.
    read = {node.target for node in nodes if isinstance(node, ast.AugAssign)}
    found = []
    for node in nodes:
        if not isinstance(node, ast.Attribute):
            continue
        if (ast.Load if node in read else type(node.ctx)) is not context:
            continue
        match node.value:
            case ast.Name(id=name):
                found.append((name, node.attr))
            case ast.Attribute(attr=name) if name in HELD:
                found.append((name, node.attr))
    return tuple(dict.fromkeys(found))


def find_call_problem(
    function: Function,
    positional: Sequence[str | None],
    keywords: Iterable[str],
    *,
    given: Container[str] | None,
    is_method: bool,
) -> str | None:
    """Return why a function rejects arguments; None if it accepts them.

    Args:
        positional: the names that its first parameters must have; None for any name.
        keywords: names of its other parameters.
        given: names of the parameters that every call passes, besides `positional`;
            None if calls may pass more.
    """
    arguments = function.args
    decorators = {ast.unparse(decorator) for decorator in function.decorator_list}
    first = 1 if is_method and "staticmethod" not in decorators else 0
    places = [arg.arg for arg in (*arguments.posonlyargs, *arguments.args)]
    n_required = len(places) - len(arguments.defaults)
    required, places = places[first:n_required], places[first:]
    for place, name in enumerate(positional):
        if place >= len(places):
            if not arguments.vararg:
                return f"takes only {len(places)} positional arguments"
        elif name not in (None, places[place]):
            return f"has `{places[place]}` in place of the parameter `{name}`"
    for name in keywords:
        if not arguments.kwarg and name not in parameters(function):
            return f"has no parameter `{name}`"
    if given is None:
        return None
    required += [
        arg.arg
        for arg, default in zip(
            arguments.kwonlyargs, arguments.kw_defaults, strict=True
        )
        if default is None
    ]
    filled = places[: len(positional)]
    missing = (n for n in required if n not in filled and n not in given)
    if lacking := next(missing, None):
        return f"also needs `{lacking}`"
    return None


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


def parameters(function: Function) -> list[str]:
    """Return the parameter names of a function, except `*args` and `**kwargs`."""
    arguments = function.args
    return [
        argument.arg
        for argument in (
            *arguments.posonlyargs,
            *arguments.args,
            *arguments.kwonlyargs,
        )
    ]
