"""What new code reads must be defined: names, attributes of `self` and `server_args`.

Where a fork or a release renamed something or dropped an import, the code would be
placed well and fail when it runs. Of the modules that land, what hooks call is looked
at: there a parameter that is annotated with a class of SGLang stands for `self`.
"""

from __future__ import annotations

import ast
import builtins
import re
import symtable
from collections.abc import Callable, Iterable, Mapping
from functools import cache, cached_property
from typing import TypeAlias

from agentcore_patches import landed
from agentcore_patches.edits import (
    DEFINITIONS,
    AddField,
    AddMethod,
    Edit,
    ScopedEdit,
    decode,
    parse,
)
from agentcore_patches.errors import SourceConflict

Read: TypeAlias = Callable[[str], bytes | None]
"""The text of a file by its path below `sglang`; None if there is no such file."""

SERVER_ARGS = "srt/server_args.py"

# What these give to a class has no name that new code could mean by mistake.
_PLAIN_BASES = {"ABC", "Enum", "Exception", "Generic", "Protocol", "object"}
_MODEL_BASES = {"BaseModel"}


def refuse_unbound_names(old: bytes, new: bytes, file: str) -> None:
    """Refuse new code that reads a name nothing binds, unless the old code did."""
    unbound = _unbound_names(new, file)
    if unbound and (unbound := unbound - _unbound_names(old, file)):
        scope, name = min(unbound)
        raise SourceConflict(
            f"{file}: in `{scope or 'the module'}`, new code would use `{name}`, which "
            "nothing defines"
        )


def refuse_undefined_attributes(
    edits: Iterable[Edit], sources: Mapping[str, bytes], read: Read
) -> None:
    """Refuse edits whose code reads an attribute that nothing in the install defines.

    An attribute of `self` is looked for in the class where the code lands (what the old
    code of the class uses counts), in its bases, and in what the edits add to them; one
    of `server_args` in the old code of the file and in `ServerArgs`.
    """
    edits = list(edits)
    install = _Install(sources, read, edits)
    for edit in edits:
        where = f"{edit.file}: in {edit.where}, new code would read"
        for owner, attribute in _attributes(edit.new_code, ast.Load):
            if owner == "server_args":
                install.require_of_server_args(attribute, edit.file, where)
                continue
            name = install.class_around(edit)
            if name and not install.has_attribute(edit.file, name, attribute):
                raise SourceConflict(
                    f"{where} `self.{attribute}`, which neither `{name}` nor a base of "
                    "it defines"
                )
    for landed_read in landed.reads(edits):
        where = f"{landed_read.module}: `{landed_read.function}` would read"
        attribute = landed_read.attribute
        if landed_read.owner is None:
            install.require_of_server_args(attribute, "", where)
        elif not install.has_attribute(*landed_read.owner, attribute):
            file, name = landed_read.owner
            raise SourceConflict(
                f"{where} `{attribute}` of `{name}`, which neither it nor a base of it "
                f"defines in {file}"
            )


@cache
def _attributes(
    code: str, context: type[ast.expr_context]
) -> tuple[tuple[str, str], ...]:
    """The attributes of `self` and of any `server_args` that code reads, or stores."""
    if "self." not in code and "server_args." not in code:
        return ()
    return tuple(landed.attributes(ast.parse(code), ("self",), context))


class _Install:
    """The classes of an install, parsed where edits ask for them."""

    def __init__(
        self, sources: Mapping[str, bytes], read: Read, edits: Iterable[Edit]
    ) -> None:
        self._sources = sources
        self._edits = edits
        self._members = cache(self._find_members)
        self._text = cache(self._read_text)
        self._read = read

    def class_around(self, edit: Edit) -> str:
        """The innermost class that an edit's code lands in; empty if there is none."""
        if not isinstance(edit, ScopedEdit):
            return ""
        parts = edit.scope.split(".")
        for depth in range(len(parts), 0, -1):
            name = ".".join(parts[:depth])
            if self._class(edit.file, name) is not None:
                return name
        return ""

    def has_attribute(self, file: str, name: str, attribute: str) -> bool:
        """Whether a class or a base of it has an attribute, or may have any."""
        definition = self._class(file, name)
        if definition is None:
            return True
        members = self._members(file, name)
        if (
            attribute in members
            or "__getattr__" in members
            or hasattr(object, attribute)
        ):
            return True
        return any(self._base_has(file, base, attribute) for base in definition.bases)

    def require_of_server_args(self, attribute: str, file: str, where: str) -> None:
        """Refuse an attribute that `ServerArgs` lacks and the old code does not read.

        An empty `file` names none: a module that lands has no old code.
        """
        text = self._server_args
        if text is None:
            return
        defined = (
            rf"(?m)^(?:    |\t)(?:(?:async )?def )?{attribute}\b\s*[:=(]"
            rf"|\bself\.{attribute}\s*(?::[^=\n]+)?=(?!=)"
        )
        around = (file and self._text(file)) or ""
        if not (
            re.search(defined, text)
            or re.search(rf"\bserver_args\.{attribute}\b", around)
        ):
            raise SourceConflict(
                f"{where} `server_args.{attribute}`, which `ServerArgs` in {SERVER_ARGS} "
                "does not define"
            )

    @cached_property
    def _server_args(self) -> str | None:
        """The text of `ServerArgs`, and of the modules that declare fields for it.

        None: there is no such file.
        """
        text = self._text(SERVER_ARGS)
        if text is None:
            return None
        found = re.search(_SERVER_ARGS_CLASS, text)
        declaring = [
            self._text(module.replace(".", "/") + ".py") or ""
            for module in re.findall(_SERVER_ARGS_FIELDS, text)
        ]
        return "\n".join([found[0] if found else "", *declaring])

    def _base_has(self, file: str, base: ast.expr, attribute: str) -> bool:
        if isinstance(base, ast.Subscript):
            base = base.value
        if not isinstance(base, ast.Name):
            return True
        if base.id in _PLAIN_BASES:
            return False
        if base.id in _MODEL_BASES:
            return attribute.startswith("model_")
        if self._class(file, base.id) is not None:
            return self.has_attribute(file, base.id, attribute)
        imported = self._imported(file, base.id)
        return imported is None or self.has_attribute(*imported, attribute)

    def _imported(self, file: str, name: str) -> tuple[str, str] | None:
        """The file and the name in it that a class is imported from; None: not ours."""
        for node in self._module(file).body:
            if not isinstance(node, ast.ImportFrom):
                continue
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    path = _path_of(node, file)
                    if path is not None and self._text(path) is not None:
                        return path, alias.name
        return None

    def _class(self, file: str, name: str) -> ast.ClassDef | None:
        body = self._module(file).body
        found: ast.stmt | None = None
        for part in name.split("."):
            found = next(
                (
                    node
                    for node in body
                    if isinstance(node, DEFINITIONS) and node.name == part
                ),
                None,
            )
            if found is None:
                return None
            body = found.body
        return found if isinstance(found, ast.ClassDef) else None

    def _find_members(self, file: str, name: str) -> set[str]:
        """What a class defines or its code uses of `self`, and what edits add to it."""
        definition = self._class(file, name)
        assert definition is not None
        members = set(_used_of_self(definition))
        for statement in definition.body:
            match statement:
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                    members.add(statement.name)
                case ast.AnnAssign(target=ast.Name(id=field)):
                    members.add(field)
                case ast.Assign(targets=targets):
                    members |= {t.id for t in targets if isinstance(t, ast.Name)}
        for edit in self._edits:
            if edit.file != file or self.class_around(edit) != name:
                continue
            if isinstance(edit, AddField):
                members |= {*edit.fields}
            if isinstance(edit, AddMethod):
                members.add(edit.method)
            members |= {
                attribute
                for owner, attribute in _attributes(edit.new_code, ast.Store)
                if owner == "self"
            }
        return members

    def _module(self, file: str) -> ast.Module:
        return parse(self._text(file) or "", file)

    def _read_text(self, file: str) -> str | None:
        text = self._sources[file] if file in self._sources else self._read(file)
        return None if text is None else decode(text, file)[0]


def _used_of_self(definition: ast.ClassDef) -> frozenset[str]:
    """The attributes of `self` that the code of a class reads or stores."""
    return frozenset(
        node.attr
        for node in ast.walk(definition)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    )


_SERVER_ARGS_CLASS = re.compile(
    r"^class ServerArgs\b.*?(?=^(?:class|def|@|[A-Za-z_]\w*\s*=)|\Z)",
    re.MULTILINE | re.DOTALL,
)

_SERVER_ARGS_FIELDS = re.compile(
    r"^from sglang\.(srt\.arg_groups\.fields\.\w+) import", re.MULTILINE
)


def _path_of(node: ast.ImportFrom, file: str) -> str | None:
    """The path below `sglang` of the module that names are imported from."""
    module = (node.module or "").split(".")
    if node.level:
        folders = file.split("/")[: -node.level]
        return "/".join([*folders, *module]) + ".py"
    return "/".join(module[1:]) + ".py" if module[0] == "sglang" else None


def _unbound_names(source: bytes, file: str) -> set[tuple[str, str]]:
    """Names that no function, module or builtin binds, after the scope that reads them."""
    module = symtable.symtable(source, file, "exec")  # type: ignore[arg-type] # bytes do
    bound = set(dir(builtins))
    bound |= {
        symbol.get_name()
        for symbol in module.get_symbols()
        if symbol.is_assigned() or symbol.is_imported()
    }
    unbound = set()
    tables = [("", module)]
    for scope, table in tables:
        unbound |= {
            (scope, symbol.get_name())
            for symbol in table.get_symbols()
            if symbol.is_global() and symbol.get_name() not in bound
        }
        tables += [
            (f"{scope}.{child.get_name()}".lstrip("."), child)
            for child in table.get_children()
        ]
    return unbound
