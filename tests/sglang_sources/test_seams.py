"""Mutants of SGLang at every seam: each lacks something that hooks or landing code use.

Each needed thing has a mutant that lacks it: an attribute, a parameter or an import has
another name, a parameter is missing or moved, a class has no bases, no `__dict__` or one
more required field, a function is a coroutine or no longer one. The planner must refuse a
mutant and name a hook, unless it is harmless: no code reads the missing thing.

`make seams` runs all releases. `docs/writing-a-patch.md` lists the limits of mutants.
"""

from __future__ import annotations

import ast
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

import pytest

from agentcore_patches.edits import Edit, Insert, Land
from agentcore_patches.errors import SourceConflict
from agentcore_patches.planning import reads
from agentcore_patches.planning.classes import (
    _BASES,
    Function,
    Install,
    _added_by,
    _declared_by,
)
from agentcore_patches.planning.name_check import (
    _reads,
    is_coroutine,
    refuse_undefined_attributes,
)
from agentcore_patches.planning.plan import make_plan
from agentcore_patches.planning.reads import (
    ATTRIBUTES,
    AttributeNeed,
    CallNeed,
    Class,
    Classes,
    ImportNeed,
    Need,
    Wrapped,
)
from agentcore_patches.planning.selection import Selection
from tests.helpers.wheels import wheel_files
from tests.sglang_sources import surgery
from tests.sglang_sources.releases import FAMILIES, NAMES, sources

SAMPLE = ("0.5.9", "0.5.23")
VERSIONS = FAMILIES if os.environ.get("AGENTCORE_ALL_SEAMS") else SAMPLE

N_PARTS = 4
FORK = "_of_a_fork"


@dataclass(frozen=True)
class Mutant:
    """SGLang with some files changed.

    Attributes:
        what: what the mutant lacks.
        texts: new texts, by file.
        harmless: why nothing needs what it lacks; empty if something does.
    """

    what: str
    texts: tuple[tuple[str, bytes], ...]
    harmless: str = ""


@dataclass
class Release:
    """A release, its edits, and what they need."""

    version: str
    edits: list[Edit] = field(init=False)
    install: Install = field(init=False)
    needs: list[Need] = field(init=False)

    def __post_init__(self) -> None:
        self.edits = list(Selection(NAMES, self.version).edits)
        self.install = Install(sources(self.version), self.read, self.edits)
        owners: dict[Edit, Classes] = {
            edit: (Class(edit.file, name),)
            for edit in self.edits
            if (name := self.install.class_around(edit))
        }
        self.needs = list(dict.fromkeys(reads.needs(self.edits, owners)))

    def read(self, path: str) -> bytes | None:
        return wheel_files(self.version, [path]).get(path)

    def text(self, file: str) -> bytes:
        return self.install.text(file).encode()

    def renamed(
        self, what: str, files: Iterable[str], word: str, harmless: str = ""
    ) -> Iterator[Mutant]:
        """Yield a mutant in which a word is replaced throughout some files."""
        pattern = rb"\b%s\b" % re.escape(word.encode())
        new = word.encode() + FORK.encode()
        texts = {
            file: changed
            for file in files
            if (changed := re.sub(pattern, new, text := self.text(file))) != text
        }
        if texts:
            yield Mutant(what, tuple(texts.items()), harmless)

    def mutants(self) -> list[Mutant]:
        """Return all mutants of this release, each once."""
        made = [
            *(mutant for need in self.needs for mutant in self._of_need(need)),
            *(mutant for edit in self.edits for mutant in self._of_hook(edit)),
            *self._without_bases(),
        ]
        return list({mutant.texts: mutant for mutant in made}.values())

    def _of_need(self, need: Need) -> Iterator[Mutant]:
        match need:
            case AttributeNeed(owners=owners, attribute="__dict__"):
                for owner in owners:
                    yield from self._packed(owner)
            case AttributeNeed(owners=owners, attribute=attribute):
                for owner in owners:
                    yield from self._without_attribute(owner, attribute)
            case CallNeed(owners=owners, method=method, keywords=keywords):
                for owner in owners:
                    yield from self._of_the_other_kind(owner, method)
                    if method == "__init__" and need.is_whole:
                        yield from self._with_another_field(owner)
                    name = f"{owner.name}.{method}" if method else owner.name
                    for keyword in keywords:
                        yield from self._without_parameter(
                            Class(owner.file, name), keyword
                        )
            case ImportNeed(file=file, name=name) if name:
                yield from self.renamed(f"import of {name}", [file], name)
            case Wrapped(edit=edit, leading=leading, named=named):
                function = Class(edit.file, edit.scope)
                for name in (*leading, *named):
                    yield from self._without_parameter(function, name)
                if need.is_awaited is not None:
                    yield from self._of_the_other_kind(function, "")
                yield from self._reordered(function, len(leading))

    def _without_attribute(self, owner: Class, attribute: str) -> Iterator[Mutant]:
        if not owner.name:
            yield from self.renamed(f"name {attribute}", [owner.file], attribute)
            return
        where = self.install.defined(owner)
        if where is None:
            return
        bases = list(self.install._with_bases(where))
        files = {base.file for _, base in bases if base is not None}
        if owner.file == reads.SERVER_ARGS:
            files |= self._server_args
        harmless = ""
        if any(_BASES.get(name, _no)(attribute) for name, base in bases if not base):
            harmless = "a base outside of SGLang has it"
        elif any(base and attribute in self._added(base) for _, base in bases):
            harmless = "the patches add it"
        what = f"attribute {owner.name}.{attribute}"
        yield from self.renamed(what, sorted(files), attribute, harmless)

    @cached_property
    def _server_args(self) -> set[str]:
        """Return the files that declare fields of `ServerArgs`."""
        found = re.findall(r"from sglang\.(srt\.arg_groups[\w.]+)", self._args_text)
        return {f"{module.replace('.', '/')}.py" for module in found}

    @property
    def _args_text(self) -> str:
        return self.install.text(reads.SERVER_ARGS)

    def _added(self, owner: Class) -> set[str]:
        """Return the names of the attributes that patches add to a class."""
        return {
            attribute
            for edit in self.edits
            if edit.file == owner.file and self.install.class_around(edit) == owner.name
            for attribute in (
                *_added_by(edit),
                *(_declared_by(edit) if isinstance(edit, Insert) else ()),
            )
        }

    def _of_the_other_kind(self, owner: Class, method: str) -> Iterator[Mutant]:
        """Yield a mutant with a coroutine in place of a function, or the other way."""
        places = [owner]
        if method:
            bases = [base for _, base in self.install._with_bases(owner) if base]
            places = [Class(base.file, f"{base.name}.{method}") for base in bases]
        found = [
            (p, node) for p in places if (node := self.install._find(p.file, p.name))
        ]
        if not found:
            return
        place, node = found[0]
        is_function = isinstance(node, ast.FunctionDef)
        if is_function or (isinstance(node, Function) and is_coroutine(node)):
            lines = self.text(place.file).splitlines(keepends=True)
            old, new = (
                (b"def ", b"async def ") if is_function else (b"async def ", b"def ")
            )
            line = lines[node.lineno - 1]
            lines[node.lineno - 1] = line.replace(old, new, 1)
            what = f"kind of function {place.name}"
            yield Mutant(what, ((place.file, b"".join(lines)),), _harmless(node))

    def _with_another_field(self, owner: Class) -> Iterator[Mutant]:
        """Yield a mutant whose class has one more field that is required."""
        where = self.install.defined(owner)
        if where is not None and self.install.fields(where):
            new = [b"field%s: int" % FORK.encode()]
            yield self._with_class(f"only the fields of {owner.name}", where, new, "")

    def _packed(self, owner: Class) -> Iterator[Mutant]:
        """Yield a mutant whose objects have no `__dict__`."""
        where = self.install.defined(owner)
        if where is not None:
            head = f"class {where.name}(msgspec.Struct):"
            yield self._with_class(f"dict of {owner.name}", where, [], head)

    def _with_class(
        self, what: str, where: Class, new: list[bytes], head: str
    ) -> Mutant:
        node = self.install.definition(where)
        assert node is not None
        lines = self.text(where.file).splitlines(keepends=True)
        first = node.body[0].lineno - 1
        margin = b" " * node.body[0].col_offset
        lines[first:first] = [margin + line + b"\n" for line in new]
        if head:
            lines[node.lineno - 1 : first] = [head.encode() + b"\n"]
        return Mutant(what, ((where.file, b"".join(lines)),))

    def _without_parameter(self, function: Class, name: str) -> Iterator[Mutant]:
        node = self.install.function(function)
        if node is None or name not in {arg.arg for arg in _all(node.args)}:
            return  # An attribute that patches add, or one of a base class.
        what = f"parameter {name} of {function.name}"
        text = self.text(function.file)
        new = surgery.substituted(text, node, name, f"{name}{FORK}")
        yield Mutant(f"{what}, renamed", ((function.file, new),))
        kept = [arg for arg in node.args.args if arg.arg != name]
        if len(kept) < len(node.args.args):
            yield self._with_parameters(f"{what}, removed", function.file, node, kept)

    def _reordered(self, function: Class, n_leading: int) -> Iterator[Mutant]:
        node = self.install.function(function)
        assert node is not None
        if n_leading > 2 and len(node.args.args) >= n_leading:
            args = list(node.args.args)
            args[n_leading - 2 : n_leading] = reversed(args[n_leading - 2 : n_leading])
            what = f"parameters of {function.name}, reordered"
            yield self._with_parameters(what, function.file, node, args)

    def _with_parameters(
        self,
        what: str,
        file: str,
        node: ast.FunctionDef | ast.AsyncFunctionDef,
        args: list[ast.arg],
    ) -> Mutant:
        """Make a mutant whose function has other parameters and the same body."""
        lines = self.text(file).splitlines(keepends=True)
        first = node.body[0].lineno - 1
        names = [arg.arg for arg in args]
        opening = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
        more = [f"{arg.arg}=None" for arg in node.args.kwonlyargs]
        star = ["*args"] if node.args.vararg else ["*"] if more else []
        rest = ["**kwargs"] if node.args.kwarg else []
        signature = ", ".join([*names, *star, *more, *rest])
        margin = " " * node.col_offset
        lines[node.lineno - 1 : first] = [
            f"{margin}{opening} {node.name}({signature}):\n".encode()
        ]
        return Mutant(what, ((file, b"".join(lines)),))

    def _of_hook(self, edit: Edit) -> Iterator[Mutant]:
        """Yield mutants for the attributes that a hook's own code reads."""
        if isinstance(edit, Land):
            return
        name = self.install.class_around(edit)
        for owner, attribute in _reads(edit.new_code):
            known = ATTRIBUTES.get(owner)
            if owner == "self" and name:
                yield from self._without_attribute(Class(edit.file, name), attribute)
            elif isinstance(known, tuple) and owner != "obj":
                yield from self._without_attribute(known[0], attribute)
            elif attribute not in self.install.added:
                what = f"attribute {owner}.{attribute}"
                yield from self.renamed(what, [edit.file], attribute)

    def _without_bases(self) -> Iterator[Mutant]:
        """Yield mutants in which a class that is needed has no base of SGLang's."""
        owners = {
            owner
            for need in self.needs
            if isinstance(need, AttributeNeed)
            for owner in need.owners
            if owner.name
        }
        for owner in sorted(owners, key=str):
            where = self.install.defined(owner)
            node = self.install.definition(where) if where else None
            if where is None or node is None or not node.bases:
                continue
            lines = self.text(where.file).splitlines(keepends=True)
            first = node.body[0].lineno - 1
            lines[node.lineno - 1 : first] = [f"class {node.name}:\n".encode()]
            text = b"".join(lines)
            own = self.install._members(where)
            read = {
                need.attribute
                for need in self.needs
                if isinstance(need, AttributeNeed) and owner in need.owners
            }
            outside = {
                attribute
                for attribute in read
                for name, base in self.install._with_bases(where)
                if base is None and _BASES.get(name, _no)(attribute)
            }
            of_bases = read - own - outside
            harmless = "" if of_bases else "nothing of them is read"
            what = f"bases of {node.name}"
            yield Mutant(what, ((where.file, text),), harmless)

    def refusal(self, mutant: Mutant) -> str | None:
        """Return why the planner refuses a mutant; None if it takes it."""
        texts = dict(mutant.texts)
        changed = {
            file: texts.get(file, text) for file, text in sources(self.version).items()
        }

        def read(path: str) -> bytes | None:
            return texts[path] if path in texts else self.read(path)

        try:
            # The last step of a plan, and the only one that reads other files.
            refuse_undefined_attributes(self.edits, changed, read)
            make_plan(changed, Selection(NAMES, self.version), read)
        except SourceConflict as refused:
            return str(refused)
        return None


def _harmless(node: ast.AST) -> str:
    """Say why another kind of a function harms nothing; empty if it does."""
    has_yield = any(isinstance(one, ast.Yield) for one in ast.walk(node))
    return "a generator is no coroutine either" if has_yield else ""


def _all(arguments: ast.arguments) -> list[ast.arg]:
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]


def _no(attribute: str) -> bool:
    return False


_releases: dict[str, Release] = {}


def release(version: str, forget: Callable[[], None]) -> Release:
    if version not in _releases:
        _releases.clear()
        forget()
        _releases[version] = Release(version)
    return _releases[version]


@pytest.mark.parametrize("part", range(N_PARTS))
@pytest.mark.parametrize("version", VERSIONS)
def test_a_mutant_is_refused_or_harmless(
    version: str,
    part: int,
    count: Counter[str],
    planned_once: Callable[[], None],
) -> None:
    of = release(version, planned_once)
    survivors = []
    for mutant in of.mutants()[part::N_PARTS]:
        kind, _, _ = mutant.what.partition(" ")
        said = of.refusal(mutant)
        if said is None and mutant.harmless:
            count[f"{kind}: harmless, {mutant.harmless}"] += 1
        elif said is None:
            survivors.append(mutant.what)
        else:
            # A hook of the patches, by its name.
            assert re.search(r"\([\w-]+/[\w-]+\)", said), (mutant.what, said)
            count[f"{kind}: refused"] += 1
    assert not survivors


def test_landing_code_reads_no_attribute_of_an_unknown_class(
    planned_once: Callable[[], None],
) -> None:
    modules = {
        edit.file.rpartition("/")[2].removesuffix(".py"): edit.text
        for edit in release(SAMPLE[0], planned_once).edits
        if isinstance(edit, Land)
    }
    # The hook tells the class of the decorated method. The others are no classes of
    # SGLang alone: its models, PyTorch's functions, pydantic's models.
    known = {
        "loaded_tensors.__torch_function__: func.__name__",
        "loaded_tensors._watching: model.load_weights",
        "vllm_fields.keep: model.model_fields",
        "weight_versions.released: self.offload_tags",
        "weight_versions.resumed: self.offload_tags",
    }
    assert set(reads.unresolved(modules)) == known
