"""The members of SGLang that landed modules use.

Landed functions are read, starting from the hooks that call them. A use of an object of
SGLang is known if the object's class is known: by the annotation of a parameter or
variable, by the class of a decorated method, or by `ATTRIBUTES`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, TypeAlias

from agentcore_patches.edits import DEFINITIONS, Decorate, Edit, Land
from agentcore_patches.patches.paths import FACTS_MODULE, LANDING

_CALL = re.compile(r"\bagentcore\.(\w+)\.(\w+)")

SERVER_ARGS = "srt/server_args.py"


@dataclass(frozen=True)
class Class:
    """A class of SGLang: its file below `sglang`, and its name."""

    file: str
    name: str


@dataclass(frozen=True)
class Many:
    """A collection of SGLang's objects."""

    of: Classes


@dataclass(frozen=True)
class Own:
    """An object of a landed class."""

    module: str
    name: str


Classes: TypeAlias = tuple[Class, ...]
"""An object of one of several classes; a release may have only one of them."""

Kind: TypeAlias = "Classes | Many | Own | None"
"""Knowledge of a value; None if nothing is known."""

_SESSIONS = (
    "srt/managers/session_controller.py",
    "srt/session/session_controller.py",
)

ATTRIBUTES: Mapping[str, Classes | Many] = {
    "server_args": (Class(SERVER_ARGS, "ServerArgs"),),
    "tokenizer_manager": (
        Class("srt/managers/tokenizer_manager.py", "TokenizerManager"),
    ),
    "model_config": (Class("srt/configs/model_config.py", "ModelConfig"),),
    "template_manager": (
        Class("srt/managers/template_manager.py", "TemplateManager"),
        Class("srt/parser/template_manager.py", "TemplateManager"),
    ),
    "session_controller": tuple(Class(file, "SessionController") for file in _SESSIONS),
    "sessions": Many(tuple(Class(file, "Session") for file in _SESSIONS)),
    "obj": (Class("srt/managers/io_struct.py", "GenerateReqInput"),),
    "rid_to_state": Many((Class("srt/managers/tokenizer_manager.py", "ReqState"),)),
    "model_update_lock": (Class("srt/utils/aio_rwlock.py", "RWLock"),),
    "last_batch": (Class("srt/managers/schedule_batch.py", "ScheduleBatch"),),
    "running_batch": (Class("srt/managers/schedule_batch.py", "ScheduleBatch"),),
    "embedding_cache": (
        Class("srt/mem_cache/multimodal_cache.py", "MultiModalStaticCache"),
    ),
    "envs": (Class("srt/environ.py", "Envs"),),
    "tool_calls": Many((Class("srt/entrypoints/openai/protocol.py", "ToolCall"),)),
    "tools": Many((Class("srt/entrypoints/openai/protocol.py", "Tool"),)),
}
"""Classes of the values of attributes of SGLang's objects, by the attribute's name."""


@dataclass(frozen=True)
class Need:
    """One member of SGLang that landed code uses.

    Attributes:
        hook: name of the hook through which the code is reached.
        module: path below `sglang` of the module that lands.
        function: name of the function in it.
    """

    hook: str
    module: str
    function: str


@dataclass(frozen=True)
class AttributeNeed(Need):
    """An attribute of an object of one of `owners`.

    Attributes:
        attribute: its name; `__dict__` for attributes that landing code adds itself.
        is_stored: the code replaces its value.
    """

    owners: Classes
    attribute: str
    is_stored: bool = False


@dataclass(frozen=True)
class CallNeed(Need):
    """The arguments of a call to a function of SGLang.

    Attributes:
        owners: classes whose method it is; the function itself if `method` is empty.
        method: name of the method; `__init__` for the constructor.
        n_positional: number of positional arguments.
        keywords: names of the other arguments.
        is_whole: the call has no other arguments, as by `*args`.
        is_awaited: the code awaits the call.
    """

    owners: Classes
    method: str
    n_positional: int
    keywords: tuple[str, ...]
    is_whole: bool
    is_awaited: bool


@dataclass(frozen=True)
class ImportNeed(Need):
    """A name in a module of SGLang; an empty `name` is the module itself."""

    file: str
    name: str


@dataclass(frozen=True)
class Wrapped(Need):
    """Parameters that a decorator expects its function to have.

    Attributes:
        leading: names of its first parameters, in order.
        named: names of parameters that are looked up or passed by name.
        is_awaited: the decorator awaits the call of the function; None if it decorates
            coroutines and functions in different ways.
    """

    edit: Decorate
    leading: tuple[str, ...]
    named: tuple[str, ...]
    is_awaited: bool | None


def needs(edits: Iterable[Edit], owners: Mapping[Edit, Classes]) -> Iterator[Need]:
    """Yield the needs of the functions that hooks call, directly or indirectly.

    Args:
        owners: class in which the function of a `Decorate` stands, if it is a method.
    """
    edits = list(edits)
    modules = _Modules(
        {
            edit.file.removeprefix(f"{LANDING}/").removesuffix(".py"): _module(
                edit.text
            )
            for edit in edits
            if isinstance(edit, Land)
        }
    )
    seen: set[tuple[str, str]] = set()
    for edit in edits:
        if isinstance(edit, Land):
            continue
        called = _CALL.findall(edit.new_code)
        if isinstance(edit, Decorate) and called:
            yield from modules.wrapped(edit, *called[0])
        pending = list(called)
        while pending:
            module, name = pending.pop()
            if (module, name) in seen or not modules.defines(module, name):
                continue
            seen.add((module, name))
            reader = modules.reader(edit.name, module, name, owners.get(edit))
            yield from reader.needs
            pending += reader.references


def unresolved(modules: Mapping[str, str]) -> Iterator[str]:
    """Yield each attribute read from a parameter that is annotated with `Any`.

    Args:
        modules: texts of the modules that land, by name.
    """
    parsed = _Modules({name: _module(text) for name, text in modules.items()})
    for module in modules:
        for name in parsed.modules[module].definitions:
            reader = parsed.reader("", module, name, None)
            yield from reader.unresolved


@dataclass(frozen=True)
class _Module:
    """A module: its definitions, its imported classes, and its own objects."""

    definitions: Mapping[str, ast.stmt]
    imported: Mapping[str, Class]
    objects: Mapping[str, ast.expr]


@cache
def _module(text: str) -> _Module:
    tree = ast.parse(text)
    definitions = {
        node.name: node for node in tree.body if isinstance(node, DEFINITIONS)
    }
    imported = {
        alias.asname or alias.name: Class(_file(node.module or ""), alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").startswith("sglang.")
        for alias in node.names
    }
    objects = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return _Module(definitions, imported, objects)


def _file(module: str) -> str:
    return module.removeprefix("sglang.").replace(".", "/") + ".py"


class _Modules:
    """The landed modules, and the facts that they read."""

    def __init__(self, modules: Mapping[str, _Module]) -> None:
        self.modules = modules
        facts_module = FACTS_MODULE.rpartition("/")[2].removesuffix(".py")
        facts = modules[facts_module].objects if facts_module in modules else {}
        self.facts = {name: ast.literal_eval(value) for name, value in facts.items()}
        self._attributes: dict[Own, dict[str, Kind]] = {}

    def defines(self, module: str, name: str) -> bool:
        """True if a landed module has a definition of that name."""
        return module in self.modules and name in self.modules[module].definitions

    def reader(
        self, hook: str, module: str, name: str, method_of: Classes | None
    ) -> _Reader:
        """Read one definition of a module.

        Args:
            method_of: class of `self` in what the definition makes of a method.
        """
        reader = _Reader(self, Need(hook, f"{LANDING}/{module}.py", name), module)
        reader.read_definition(self.modules[module].definitions[name], method_of)
        return reader

    def attributes_of(self, own: Own) -> Mapping[str, Kind]:
        """Kinds of the attributes of an object of a landed class."""
        if own not in self._attributes:
            self._attributes[own] = {}
            definition = self.modules[own.module].definitions[own.name]
            reader = _Reader(self, Need("", "", ""), own.module)
            reader.read_definition(definition, None)
            self._attributes[own] = reader.stored
        return self._attributes[own]

    def wrapped(self, edit: Decorate, module: str, name: str) -> Iterator[Wrapped]:
        """Yield the parameters that a landed decorator expects of its function."""
        if not self.defines(module, name):
            return
        decorator = self.modules[module].definitions[name]
        assert isinstance(decorator, ast.FunctionDef)
        function = decorator.args.args[0].arg
        wrappers = [
            node
            for node in ast.walk(decorator)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and any(_wraps(call, function) for call in node.decorator_list)
        ]
        leading = max((_names(node.args) for node in wrappers), key=len, default=())
        calls = [
            node
            for node in ast.walk(decorator)
            if isinstance(node, ast.Call) and _calls(node, function)
        ]
        passed = [
            keyword.arg for call in calls for keyword in call.keywords if keyword.arg
        ]
        looked_up = [
            argument
            for node in ast.walk(decorator)
            if (argument := _argument(node)) is not None
        ]
        awaited = [
            node.value for node in ast.walk(decorator) if isinstance(node, ast.Await)
        ]
        yield Wrapped(
            edit.name,
            f"{LANDING}/{module}.py",
            name,
            edit,
            leading,
            tuple(dict.fromkeys([*looked_up, *passed])),
            any(call in awaited for call in calls) if len(wrappers) == 1 else None,
        )


def _wraps(decorator: ast.expr, function: str) -> bool:
    """True for `@wraps(function)`."""
    match decorator:
        case ast.Call(
            func=ast.Name(id="wraps") | ast.Attribute(attr="wraps"),
            args=[ast.Name(id=name)],
        ):
            return name == function
    return False


def _argument(node: ast.AST) -> str | None:
    """The name in `call.arguments["name"]`."""
    match node:
        case ast.Subscript(
            value=ast.Attribute(attr="arguments"), slice=ast.Constant(value=str(name))
        ):
            return name
    return None


def _calls(call: ast.Call, function: str) -> bool:
    """True for `function(...)` and `partial(function, ...)`."""
    match call:
        case ast.Call(func=ast.Name(id=name)) if name == function:
            return True
        case ast.Call(func=ast.Name(id="partial"), args=[ast.Name(id=name), *_]):
            return name == function
    return False


def _names(arguments: ast.arguments) -> tuple[str, ...]:
    """Names of the positional parameters, in order."""
    return tuple(arg.arg for arg in (*arguments.posonlyargs, *arguments.args))


Scope: TypeAlias = dict[str, Kind]
"""Kinds of the variables of a function, by name."""

_SELF_INSIDE = "self of functions inside"
"""The key of a scope for the class of `self` in functions that wrap a method."""


@dataclass
class _Reader:
    """Reads landed code, and records what it needs from SGLang.

    Branches that the facts of the release rule out are skipped.

    Attributes:
        place: hook, module and function that needs are noted for.
        module: name of the module.
        needs: what was found.
        references: definitions that land and that the code refers to.
        stored: kinds of the attributes that a class gives its objects.
        unresolved: reads of attributes of parameters that are annotated with `Any`.
    """

    modules: _Modules
    place: Need
    module: str
    needs: list[Need] = field(default_factory=list)
    references: list[tuple[str, str]] = field(default_factory=list)
    stored: dict[str, Kind] = field(default_factory=dict)
    unresolved: list[str] = field(default_factory=list)
    _any: set[str] = field(default_factory=set)

    def read_definition(self, definition: ast.stmt, method_of: Classes | None) -> None:
        """Read a function or class of the module."""
        if isinstance(definition, ast.ClassDef):
            own = Own(self.module, definition.name)
            for base in definition.bases:
                self._kind(base, {})
            for statement in definition.body:
                if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
                    self._function(statement, {}, own)
                elif isinstance(statement, ast.AnnAssign):
                    assert isinstance(statement.target, ast.Name)
                    kind = self._annotated(statement.annotation)
                    self.stored[statement.target.id] = kind
                    if statement.value is not None:
                        self._kind(statement.value, {})
                else:
                    self._read([statement], {})
            return
        assert isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef)
        self._function(definition, {}, None, method_of)

    def _function(
        self,
        function: ast.FunctionDef | ast.AsyncFunctionDef,
        around: Scope,
        own: Own | None,
        method_of: Kind = None,
    ) -> None:
        """Read a function in a scope.

        Args:
            own: class that lands, if the function is a method of it.
            method_of: class of `self` where the function wraps a method.
        """
        outer, outer_any = self.place, self._any
        self.place = replace(outer, function=function.name)
        scope = dict(around)
        self._any = set(self._any)
        for decorator in function.decorator_list:
            self._kind(decorator, scope)
        arguments = function.args
        for default in (*arguments.defaults, *arguments.kw_defaults):
            if default is not None:
                self._kind(default, scope)
        for argument in (
            *arguments.posonlyargs,
            *arguments.args,
            *arguments.kwonlyargs,
        ):
            kind = self._annotated(argument.annotation)
            if argument.arg == "self" and kind is None:
                kind = own or method_of
            scope[argument.arg] = kind
            self._any.discard(argument.arg)
            match argument.annotation:
                case ast.Name(id="Any") if kind is None:
                    self._any.add(argument.arg)
        scope[_SELF_INSIDE] = None if own else method_of
        self._read(function.body, scope)
        self.place, self._any = outer, outer_any

    def _read(self, body: Sequence[ast.stmt], scope: Scope) -> bool:
        """Read statements; return True if the code after them is unreachable."""
        return any(self._ends(statement, scope) for statement in body)

    def _ends(self, statement: ast.stmt, scope: Scope) -> bool:
        match statement:
            case ast.If(test=test, body=body, orelse=orelse):
                self._kind(test, scope)
                holds = self._fact(test)
                if holds is not None:
                    return self._read(body if holds else orelse, scope)
                ends = self._read(body, scope)
                return self._read(orelse, scope) and ends
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._function(statement, scope, None, scope.get(_SELF_INSIDE))
            case ast.ClassDef():
                self._nested_class(statement, scope)
            case ast.Return(value=value):
                if value is not None:
                    self._kind(value, scope)
                return True
            case ast.Raise():
                self._expressions(statement, scope)
                return True
            case (
                ast.For(target=target, iter=each)
                | ast.AsyncFor(target=target, iter=each)
            ):
                self._bind(target, _element(self._kind(each, scope)), scope)
                self._read([*statement.body, *statement.orelse], scope)
            case ast.With() | ast.AsyncWith():
                for item in statement.items:
                    self._kind(item.context_expr, scope)
                return self._read(statement.body, scope)
            case ast.Try():
                ends = self._read(statement.body, scope)
                for handler in statement.handlers:
                    if handler.type is not None:
                        self._kind(handler.type, scope)
                    ends = self._read(handler.body, scope) and ends
                self._read(statement.orelse, scope)
                return self._read(statement.finalbody, scope) or ends
            case ast.While(test=test, body=body, orelse=orelse):
                self._kind(test, scope)
                self._read([*body, *orelse], scope)
            case ast.Assign(targets=targets, value=value):
                kind = self._kind(value, scope)
                for target in targets:
                    self._bind(target, kind, scope)
            case ast.AnnAssign(target=target, annotation=annotation, value=value):
                found = self._kind(value, scope) if value is not None else None
                self._bind(target, self._annotated(annotation) or found, scope)
            case ast.AugAssign(target=target, value=value):
                # `x.y += 1` reads it first.
                reading: ast.expr = target
                if isinstance(target, ast.Attribute):
                    reading = ast.Attribute(target.value, target.attr, ast.Load())
                self._kind(reading, scope)
                self._kind(value, scope)
            case ast.ImportFrom(module=module, names=names) if (
                module or ""
            ).startswith("sglang."):
                for alias in names:
                    self._import(_file(module or ""), alias.name)
            case _:
                self._expressions(statement, scope)
        return False

    def _nested_class(self, definition: ast.ClassDef, scope: Scope) -> None:
        """Read a class in a function; a base must have the names that it lacks."""
        imported = self.modules.modules[self.module].imported
        bases = tuple(
            imported[base.id]
            for base in definition.bases
            if isinstance(base, ast.Name) and base.id in imported
        )
        own = {node.attr for node in _of_self(definition, ast.Store)}
        own |= {node.name for node in definition.body if isinstance(node, DEFINITIONS)}
        before = len(self.needs)
        for statement in definition.body:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
                self._function(statement, scope, None, bases or None)
        self.needs[before:] = [
            need
            for need in self.needs[before:]
            if not (
                isinstance(need, AttributeNeed)
                and need.owners == bases
                and need.attribute in own
            )
        ]

    def _expressions(self, statement: ast.AST, scope: Scope) -> None:
        for child in ast.iter_child_nodes(statement):
            if isinstance(child, ast.expr):
                self._kind(child, scope)
            else:
                self._expressions(child, scope)

    def _bind(self, target: ast.expr, kind: Kind, scope: Scope) -> None:
        """Record the kind of an assigned value; storing is not reading."""
        match target:
            case ast.Name(id=name):
                scope[name] = kind
                self._any.discard(name)
            case ast.Attribute(value=value, attr=attribute):
                owner = self._kind(value, scope)
                if isinstance(owner, Own) and kind is not None:
                    self.stored[attribute] = kind
                if isinstance(owner, tuple):
                    self._need(owner, attribute, is_stored=True)
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                for part in parts:
                    self._bind(part, None, scope)
            case ast.Starred(value=value):
                self._bind(value, None, scope)
            case ast.Subscript():
                self._expressions(target, scope)

    def _kind(self, node: ast.expr, scope: Scope) -> Kind:
        """Read an expression; return the kind of its value."""
        match node:
            case ast.Name(id=name):
                return self._name(name, scope)
            case ast.Attribute(value=value, attr=attribute):
                return self._attribute(value, attribute, scope)[1]
            case ast.Call():
                return self._call(node, scope)
            case ast.BoolOp(op=op, values=values):
                kinds = []
                for value in values:
                    kinds.append(self._kind(value, scope))
                    if self._fact(value) is isinstance(op, ast.Or):
                        break
                return _first(kinds)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                self._kind(test, scope)
                holds = self._fact(test)
                chosen = (
                    [body, orelse] if holds is None else [body if holds else orelse]
                )
                return _first([self._kind(one, scope) for one in chosen])
            case ast.NamedExpr(target=target, value=value):
                kind = self._kind(value, scope)
                self._bind(target, kind, scope)
                return kind
            case ast.Await(value=ast.Call() as call):
                return self._call(call, scope, is_awaited=True)
            case ast.Await(value=value):
                return self._kind(value, scope)
            case ast.Subscript(value=value, slice=index):
                self._kind(index, scope)
                of = self._kind(value, scope)
                return of if isinstance(index, ast.Slice) else _element(of)
            case (
                ast.ListComp(elt=element, generators=loops)
                | ast.SetComp(elt=element, generators=loops)
                | ast.GeneratorExp(elt=element, generators=loops)
                | ast.DictComp(value=element, generators=loops)
            ):
                inner = dict(scope)
                for loop in loops:
                    each = _element(self._kind(loop.iter, inner))
                    self._bind(loop.target, each, inner)
                    for condition in loop.ifs:
                        self._kind(condition, inner)
                if isinstance(node, ast.DictComp):
                    self._kind(node.key, inner)
                kind = self._kind(element, inner)
                return Many(kind) if isinstance(kind, tuple) else None
            case ast.Lambda(args=arguments, body=body):
                hidden: Scope = dict.fromkeys(_names(arguments))
                return self._kind(body, {**scope, **hidden})
        self._expressions(node, scope)
        return None

    def _name(self, name: str, scope: Scope) -> Kind:
        if name in scope:
            return scope[name]
        module = self.modules.modules[self.module]
        if name in module.definitions:
            self.references.append((self.module, name))
        match module.objects.get(name):
            case ast.Call(func=ast.Name(id=made)) if isinstance(
                module.definitions.get(made), ast.ClassDef
            ):
                return Own(self.module, made)
        return None

    def _attribute(
        self, value: ast.expr, attribute: str, scope: Scope
    ) -> tuple[Kind, Kind]:
        """Read an attribute; return the kinds of its owner and of its value."""
        match value:
            case ast.Name(id=other) if other not in scope and self.modules.defines(
                other, attribute
            ):
                self.references.append((other, attribute))
                return None, None
            case ast.Name(id=name) if name in self._any:
                function = self.place.function
                self.unresolved.append(f"{self.module}.{function}: {name}.{attribute}")
        owner = self._kind(value, scope)
        if isinstance(owner, Own):
            return owner, self.modules.attributes_of(owner).get(attribute)
        if owner is None and isinstance(value, ast.Name | ast.Attribute):
            name = value.id if isinstance(value, ast.Name) else value.attr
            owner = ATTRIBUTES[name] if name in ("server_args", "envs") else None
        if isinstance(owner, tuple):
            self._need(owner, attribute)
        return owner, ATTRIBUTES.get(attribute)

    def _need(
        self, owners: Classes, attribute: str, *, is_stored: bool = False
    ) -> None:
        self.needs.append(
            AttributeNeed(
                **vars(self.place),
                owners=owners,
                attribute=attribute,
                is_stored=is_stored,
            )
        )

    def _import(self, file: str, name: str) -> None:
        self.needs.append(ImportNeed(**vars(self.place), file=file, name=name))

    def _call(self, call: ast.Call, scope: Scope, *, is_awaited: bool = False) -> Kind:
        match call:
            case ast.Call(func=ast.Name(id="vars"), args=[obj]):
                kind = self._kind(obj, scope)
                if isinstance(kind, tuple):
                    self._need(kind, "__dict__")
                return None
            case ast.Call(
                func=ast.Attribute(attr="create_task" | "ensure_future"),
                args=[ast.Call() as task],
            ):
                self._call(task, scope, is_awaited=True)
                return None
            case ast.Call(
                func=ast.Call(func=ast.Name(id=getter), args=[path]), args=[obj]
            ) if getter in ("attrgetter", "methodcaller"):
                self._needs_path(self._text(path), self._kind(obj, scope))
                return None
            case ast.Call(func=ast.Name(id="getattr"), args=[obj, path]):
                self._needs_path(self._text(path), self._kind(obj, scope))
                return None
            case ast.Call(func=ast.Name(id="setattr"), args=[obj, path, value]) if (
                name := self._text(path)
            ):
                kind = self._kind(obj, scope)
                self._kind(value, scope)
                if isinstance(kind, tuple):
                    self._need(kind, name, is_stored=True)
                return None
            case ast.Call(func=ast.Name(id="import_module"), args=[path]):
                imported = self._text(path)
                if imported is None:
                    return None
                self._import(_file(imported), "")
                return (Class(_file(imported), ""),)
        kinds = [self._kind(argument, scope) for argument in call.args]
        for keyword in call.keywords:
            self._kind(keyword.value, scope)
        owner: Kind = None
        match call.func:
            case ast.Attribute(value=value, attr=attribute):
                owner, kind = self._attribute(value, attribute, scope)
            case _:
                kind = self._kind(call.func, scope)
        self._needs_call(call, owner, scope, is_awaited)
        match call.func:
            case ast.Name(id=name) if name not in scope:
                module = self.modules.modules[self.module]
                if name in module.imported:
                    return (module.imported[name],) if _is_class(name) else None
                return self._made(self.module, name)
            case ast.Attribute(value=ast.Name(id=other), attr=name) if (
                other not in scope
            ):
                return self._made(other, name)
            case ast.Attribute(attr="values" | "copy" | "model_copy"):
                return owner
            case ast.Attribute(attr="get" | "pop") if isinstance(owner, Many):
                return owner.of
        if kinds and isinstance(call.func, ast.Name) and call.func.id in _PASSING:
            return kinds[0]
        return kind if isinstance(kind, Many) else None

    def _needs_call(
        self, call: ast.Call, owners: Kind, scope: Scope, is_awaited: bool
    ) -> None:
        """Record the arguments of a call to a function of SGLang.

        Args:
            owners: kind of the object whose method is called, if it is a method.
        """
        module = self.modules.modules[self.module]
        match call.func:
            case ast.Name(id=name) if name not in scope and name in module.imported:
                owners = (module.imported[name],)
                method = "__init__" if _is_class(name) else ""
            case ast.Attribute(attr=method):
                pass
            case _:
                return
        if not isinstance(owners, tuple):
            return
        self.needs.append(
            CallNeed(
                **vars(self.place),
                owners=owners,
                method=method,
                is_awaited=is_awaited,
                **arguments_of(call),
            )
        )

    def _made(self, module: str, name: str) -> Kind:
        """Return the kind of value that a landed function or class returns."""
        if not self.modules.defines(module, name):
            return None
        definition = self.modules.modules[module].definitions[name]
        if isinstance(definition, ast.ClassDef):
            return Own(module, name)
        assert isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef)
        return self._annotated(definition.returns, module)

    def _needs_path(self, path: str | None, kind: Kind) -> None:
        """Record the attributes of a dotted path."""
        for attribute in path.split(".") if path else ():
            if not isinstance(kind, tuple):
                return
            self._need(kind, attribute)
            kind = ATTRIBUTES.get(attribute)

    def _text(self, node: ast.expr) -> str | None:
        """Return the text that the release's facts give an expression, if known."""
        match node:
            case ast.Constant(value=str(text)):
                return text
            case ast.Attribute(value=ast.Name(id="release"), attr=fact):
                known = self.modules.facts.get(fact)
                return known if isinstance(known, str) else None
            case ast.JoinedStr(values=values):
                parts = [
                    self._text(v.value if isinstance(v, ast.FormattedValue) else v)
                    for v in values
                ]
                known_parts = [part for part in parts if part is not None]
                return "".join(known_parts) if len(known_parts) == len(parts) else None
        return None

    def _fact(self, test: ast.expr) -> bool | None:
        """Return a condition's value by the facts of the release; None if unknown."""
        match test:
            case ast.Attribute(value=ast.Name(id="release"), attr=fact):
                known = self.modules.facts.get(fact)
                return known if isinstance(known, bool) else None
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                holds = self._fact(operand)
                return None if holds is None else not holds
            case ast.BoolOp(op=op, values=values):
                decisive = isinstance(op, ast.Or)
                known_values = [self._fact(value) for value in values]
                if decisive in known_values:
                    return decisive
                return None if None in known_values else not decisive
        return None

    def _annotated(self, annotation: ast.expr | None, module: str = "") -> Kind:
        """Return the kind of a value with this annotation."""
        imported = self.modules.modules[module or self.module].imported
        match annotation:
            case ast.Constant(value=str(text)):
                return self._annotated(ast.parse(text, mode="eval").body, module)
            case ast.Name(id=name):
                if name in imported:
                    return (imported[name],)
                if self.modules.defines(module or self.module, name):
                    return Own(module or self.module, name)
                return None
            case ast.Attribute(value=ast.Name(id=other), attr=name):
                return Own(other, name) if self.modules.defines(other, name) else None
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                kinds = [self._annotated(one, module) for one in (left, right)]
                classes = [kind for kind in kinds if isinstance(kind, tuple)]
                if len(classes) == 2:
                    return (*classes[0], *classes[1])
                return _first(kinds)
            case ast.Subscript(value=ast.Name(id=name), slice=inside):
                if name == "Optional":
                    return self._annotated(inside, module)
                if isinstance(inside, ast.Tuple):
                    if name != "dict" and name != "Mapping":
                        return None
                    inside = inside.elts[-1]
                of = self._annotated(inside, module)
                return Many(of) if isinstance(of, tuple) else None
        return None


def arguments_of(call: ast.Call) -> dict[str, Any]:
    """Return the fields of a `CallNeed` that say with which arguments a call is made."""
    positional = [one for one in call.args if not isinstance(one, ast.Starred)]
    keywords = [keyword.arg for keyword in call.keywords if keyword.arg]
    given = (len(positional), len(keywords))
    return {
        "n_positional": given[0],
        "keywords": tuple(keywords),
        "is_whole": given == (len(call.args), len(call.keywords)),
    }


def _of_self(tree: ast.AST, context: type[ast.expr_context]) -> Iterator[ast.Attribute]:
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="self")) if isinstance(
                node.ctx, context
            ):
                yield node


def _is_class(name: str) -> bool:
    return name.lstrip("_")[:1].isupper()


_PASSING = ("list", "sorted", "reversed", "iter", "next", "tuple", "copy")


def _first(kinds: Iterable[Kind]) -> Kind:
    """Return the first value whose kind is known."""
    return next((kind for kind in kinds if kind is not None), None)


def _element(kind: Kind) -> Kind:
    return kind.of if isinstance(kind, Many) else None


@cache
def attributes(
    code: str, context: type[ast.expr_context]
) -> tuple[tuple[str, str], ...]:
    """Return the attributes of names, and of objects in `ATTRIBUTES`, that code uses.

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
            # Methods of a collection are Python's own.
            case ast.Attribute(attr=name) if isinstance(ATTRIBUTES.get(name), tuple):
                found.append((name, node.attr))
    return tuple(dict.fromkeys(found))
