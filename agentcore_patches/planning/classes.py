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


@dataclass(frozen=True)
class Class:
    """A class, or another definition, by its file below `sglang` and its name."""

    file: str
    name: str


SERVER_ARGS = Class("srt/server_args.py", "ServerArgs")


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
        self._text = cache(self._read_text)
        self._imports = cache(self._find_imports)
        self._module = cache(self._parsed)
        self._find = cache(self._find_definition)
        self._definitions = cache(self._find_definitions)
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
        """True if a module assigns or imports a name."""
        return name in _assigned(self._module(file).body) or name in self._imports(file)

    def has_attribute(self, owner: Class, attribute: str) -> bool:
        """True if a class, or one of its bases, declares or assigns an attribute.

        Raises:
            Unresolved: a base that may have it cannot be looked up.
        """
        if hasattr(object, attribute):
            return True
        unknown = []
        for name, base in self._with_bases(owner):
            if base is None:
                if comes_with(name, attribute):
                    return True
                if name not in _BASES:
                    unknown.append(name)
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
        if ("Struct", None) in self._with_bases(owner):
            return not any(_has_option(one, "dict") for one in found)
        return bool(found) and all(
            _has_option(one, "slots")
            or any(name == "__slots__" for name in _assigned(one.body))
            for one in found
        )

    def is_frozen(self, owner: Class) -> bool:
        """True if attributes of objects of a class cannot be stored."""
        return any(_has_option(one, "frozen") for one in self._found_bases(owner))

    def needed_fields(self, owner: Class) -> list[str]:
        """The fields that a class of fields declares without a value."""
        has_value: dict[str, bool] = {}
        for one in reversed(self._found_bases(owner)):
            for statement in one.body:
                match statement:
                    case ast.AnnAssign(target=ast.Name(id=name), annotation=kind):
                        is_field = "ClassVar" not in ast.unparse(kind)
                        has_value[name] = not is_field or _is_value(statement.value)
        return [name for name, found in has_value.items() if not found]

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
            if found == SERVER_ARGS:
                pending += self._fields_of_server_args()

    def _fields_of_server_args(self) -> Iterator[tuple[str, Class | None]]:
        """Yield the classes whose fields `ServerArgs` gets at run time, from 0.5.21 on."""
        for name, places in self._imports(SERVER_ARGS.file).items():
            if places[0][0].startswith("srt/arg_groups/fields/"):
                yield name, self.defined(Class(SERVER_ARGS.file, name))

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

    def _find_definition(self, file: str, scope: str) -> _Definition | None:
        outer, _, name = scope.rpartition(".")
        return self._definitions(file, outer).get(name)

    def _find_definitions(self, file: str, scope: str) -> Mapping[str, _Definition]:
        """Return the first definition of each name in a definition, or in a module."""
        outer = self._find(file, scope) if scope else self._module(file)
        found = () if outer is None else _defined(outer.body)
        return {node.name: node for node in reversed([*found])}

    def uses_itself(self, owner: Class, attribute: str) -> bool:
        """True if the old code of a class uses an attribute of `self`."""
        definition = self.definition(owner)
        if definition is None:
            return False
        lines = self.text(owner.file).split("\n")
        code = "\n".join(lines[definition.lineno : definition.end_lineno])
        return re.search(rf"\bself\.{attribute}\b", code) is not None

    def _find_members(self, owner: Class) -> set[str]:
        """Return the names that a class declares or assigns, or gets by edits."""
        definition = self.definition(owner)
        assert definition is not None
        members = _stored(definition) | {*_assigned(definition.body)}
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


def _stored(definition: ast.ClassDef) -> set[str]:
    """Names of the attributes that the code of a class stores on `self`."""
    stored = set()
    for statement in statements(definition.body):
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
                    stored.add(attribute)
    return stored


def comes_with(base: str, attribute: str) -> bool:
    """True if a base class outside of SGLang brings an attribute."""
    start = _BASES.get(base)
    return bool(start) and attribute.startswith(str(start))


def _path_of(node: ast.ImportFrom, file: str) -> str | None:
    """Return the path below `sglang` of the module that names are imported from."""
    module = (node.module or "").split(".")
    if node.level:
        folders = file.split("/")[: -node.level]
        return "/".join([*folders, *module]) + ".py"
    return "/".join(module[1:]) + ".py" if module[0] == "sglang" else None


HELD: Mapping[str, Class] = {
    "server_args": SERVER_ARGS,
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


def _is_value(default: ast.expr | None) -> bool:
    """False for a field without a default, also for `Field(...)`."""
    match default:
        case ast.Call(args=[ast.Constant(value=first), *_]):
            return first is not ...
    return default is not None
