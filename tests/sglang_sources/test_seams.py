"""Mutants of SGLang at every seam: each lacks something that hooks or landing code use.

Each name in the stubs, and each that a hook's own code uses, has mutants that lack it:
it has another name, everywhere or only where it is defined; a parameter is missing or
moved, a class has no bases, no `__dict__` or one more required field, a function is a
coroutine or no longer one. The planner must refuse a mutant and name the landing module
or the hook, unless it is harmless. `RENAMES` has more: a person chose them, not the stubs.

`make seams` runs all releases. `docs/writing-a-patch.md` lists the limits of mutants.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

import pytest

from agentcore_patches.edits import Edit, Insert, Land
from agentcore_patches.errors import SourceConflict
from agentcore_patches.patches.releases import is_between
from agentcore_patches.planning import stubs
from agentcore_patches.planning.classes import (
    HELD,
    Class,
    Function,
    Install,
    _added_by,
    _declared_by,
    comes_with,
    is_coroutine,
    parameters,
)
from agentcore_patches.planning.name_check import (
    _reads,
    refuse_undefined_attributes,
)
from agentcore_patches.planning.plan import make_plan
from agentcore_patches.planning.selection import Selection
from agentcore_patches.planning.stubs import Use
from tests.sglang_sources import surgery
from tests.sglang_sources.releases import FAMILIES, NAMES, read, sources

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
    uses: list[Use] = field(init=False)

    def __post_init__(self) -> None:
        self.edits = list(Selection(NAMES, self.version).edits)
        self.install = Install(
            sources(self.version), partial(read, self.version), self.edits
        )
        self.uses = [
            use
            for use in stubs.uses()
            if is_between(self.version, use.since, use.until)
            and stubs._user(use, self.edits)
        ]

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
            *(mutant for use in self.uses for mutant in self._of_use(use)),
            *(mutant for edit in self.edits for mutant in self._of_hook(edit)),
            *self._without_bases(),
        ]
        return list({mutant.texts: mutant for mutant in made}.values())

    def _of_use(self, use: Use) -> Iterator[Mutant]:
        if use.owner is None:
            where = self.install.defined(Class(use.file, use.name))
            files = {use.file, where.file if where else use.file}
            yield from self.renamed(f"name {use.name}", sorted(files), use.name)
            if isinstance(use.node, Function):
                place = Class(use.file, use.name)
                yield from self._of_function(place, use.node, use.name)
            return
        owner = self.install.defined(use.owner)
        if owner is None:
            return
        if use.name in ("__dict__", "__weakref__"):
            yield from self._packed(owner)
            return
        if use.name != "__init__":
            yield from self._without_attribute(owner, use.name)
        if not isinstance(use.node, Function):
            return
        method = self.install.method(owner, use.name)
        if method is not None:
            yield from self._of_function(method[0], use.node, use.name)
        elif use.name == "__init__":
            for argument in use.node.args.kwonlyargs:
                yield from self._without_attribute(owner, argument.arg)
            if not use.node.args.kwarg:
                yield from self._with_another_field(owner)

    def _of_function(self, place: Class, stub: Function, name: str) -> Iterator[Mutant]:
        """Yield mutants whose function cannot be called like its stub."""
        returns = "" if stub.returns is None else ast.unparse(stub.returns)
        if "Awaitable" not in returns:
            yield from self._of_the_other_kind(place)
        leading = [arg.arg for arg in stub.args.args]
        for argument in (*leading, *(arg.arg for arg in stub.args.kwonlyargs)):
            if argument not in ("self", "cls"):
                yield from self._without_parameter(place, argument)
        yield from self._reordered(place, len(leading))

    def _without_attribute(self, owner: Class, attribute: str) -> Iterator[Mutant]:
        bases = list(self.install._with_bases(owner))
        found = [base for _, base in bases if base is not None]
        files = {base.file for base in found}
        harmless = self._why_added(found, attribute)
        if any(comes_with(name, attribute) for name, base in bases if not base):
            harmless = "a base outside of SGLang has it"
        what = f"attribute {owner.name}.{attribute}"
        yield from self.renamed(what, sorted(files), attribute, harmless)
        yield from self._undefined(what, found, attribute, harmless)

    def _undefined(
        self, what: str, owners: Iterable[Class], attribute: str, harmless: str
    ) -> Iterator[Mutant]:
        """Yield a mutant in which an attribute is only read: no class defines it."""
        texts: dict[str, bytes] = {}
        for owner in owners:
            text = texts.get(owner.file, self.text(owner.file))
            node = self.install.definition(owner)
            assert node is not None
            texts[owner.file] = surgery.undefined(text, node, attribute, FORK)
        changed = {file: new for file, new in texts.items() if new != self.text(file)}
        if changed:
            yield Mutant(f"{what}, only read", tuple(changed.items()), harmless)

    def _why_added(self, owners: Iterable[Class], attribute: str) -> str:
        """Return why an attribute that patches add is not missed; empty if none does."""
        is_added = any(attribute in self._added(owner) for owner in owners)
        return "the patches add it" if is_added else ""

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

    def _of_the_other_kind(self, place: Class) -> Iterator[Mutant]:
        """Yield a mutant with a coroutine in place of a function, or the other way."""
        node = self.install.function(place)
        assert node is not None
        is_function = isinstance(node, ast.FunctionDef)
        if is_function or is_coroutine(node):
            lines = self.text(place.file).splitlines(keepends=True)
            old, new = (
                (b"def ", b"async def ") if is_function else (b"async def ", b"def ")
            )
            line = lines[node.lineno - 1]
            lines[node.lineno - 1] = line.replace(old, new, 1)
            what = f"kind of function {place.name}"
            text = b"".join(lines)
            yield Mutant(what, ((place.file, text),), _harmless(node))

    def _with_another_field(self, owner: Class) -> Iterator[Mutant]:
        """Yield a mutant whose class has one more field that is required."""
        node = self.install.definition(owner)
        assert node is not None
        field = f"{' ' * node.body[0].col_offset}field{FORK}: int\n".encode()
        text = surgery.with_lines(
            self.text(owner.file), [(node.body[0].lineno - 1, field)]
        )
        yield Mutant(f"only the fields of {owner.name}", ((owner.file, text),))

    def _packed(self, owner: Class) -> Iterator[Mutant]:
        """Yield a mutant whose objects have no `__dict__`."""
        node = self.install.definition(owner)
        assert node is not None
        head = f"class {owner.name}(msgspec.Struct):"
        yield self._headed(f"dict of {owner.name}", owner.file, node, head)

    def _headed(
        self,
        what: str,
        file: str,
        node: surgery.Definition,
        head: str,
        harmless: str = "",
    ) -> Mutant:
        """Make a mutant with another head of a class or function and the same body."""
        lines = self.text(file).splitlines(keepends=True)
        margin = " " * node.col_offset
        lines[node.lineno - 1 : node.body[0].lineno - 1] = [
            f"{margin}{head}\n".encode()
        ]
        return Mutant(what, ((file, b"".join(lines)),), harmless)

    def _without_parameter(self, function: Class, name: str) -> Iterator[Mutant]:
        node = self.install.function(function)
        if node is None or name not in parameters(node):
            return  # A hook adds it.
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
        """Make a mutant whose function has other parameters."""
        names = [arg.arg for arg in args]
        opening = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
        more = [f"{arg.arg}=None" for arg in node.args.kwonlyargs]
        star = ["*args"] if node.args.vararg else ["*"] if more else []
        rest = ["**kwargs"] if node.args.kwarg else []
        signature = ", ".join([*names, *star, *more, *rest])
        return self._headed(what, file, node, f"{opening} {node.name}({signature}):")

    def _of_hook(self, edit: Edit) -> Iterator[Mutant]:
        """Yield mutants for the attributes that a hook's own code reads."""
        if isinstance(edit, Land):
            return
        name = self.install.class_around(edit)
        for owner, attribute in _reads(edit.new_code):
            if owner == "self" and name:
                own = Class(edit.file, name)
                bases = [base for _, base in self.install._with_bases(own) if base]
                harmless = self._why_added(bases, attribute)
                files = sorted({base.file for base in bases})
                what = f"attribute {name}.{attribute}"
                yield from self.renamed(what, files, attribute, harmless)
            elif owner in HELD:
                yield from self._without_attribute(HELD[owner], attribute)
            elif attribute not in self.install.added:
                what = f"attribute {owner}.{attribute}"
                yield from self.renamed(what, [edit.file], attribute)

    def _without_bases(self) -> Iterator[Mutant]:
        """Yield mutants in which a class that is needed has no base of SGLang's."""
        for owner in sorted({use.owner for use in self.uses if use.owner}, key=str):
            where = self.install.defined(owner)
            node = self.install.definition(where) if where else None
            if where is None or node is None or not node.bases:
                continue
            own = self.install._members(where)
            read = {
                use.name
                for use in self.uses
                if use.owner == owner and not use.name.startswith("__")
            }
            outside = {
                attribute
                for attribute in read
                for name, base in self.install._with_bases(where)
                if base is None and comes_with(name, attribute)
            }
            of_bases = read - own - outside
            harmless = "" if of_bases else "nothing of them is read"
            what, head = f"bases of {node.name}", f"class {node.name}:"
            yield self._headed(what, where.file, node, head, harmless)

    def refusal(self, mutant: Mutant) -> str | None:
        """Return why the planner refuses a mutant; None if it takes it."""
        texts = dict(mutant.texts)
        changed = {
            file: texts.get(file, text) for file, text in sources(self.version).items()
        }

        def read_mutant(path: str) -> bytes | None:
            return texts[path] if path in texts else read(self.version, path)

        try:
            # The last step of a plan, and the only one that reads other files.
            refuse_undefined_attributes(self.edits, changed, read_mutant, self.version)
            make_plan(changed, Selection(NAMES, self.version), read_mutant)
        except SourceConflict as refused:
            return str(refused)
        return None


def _harmless(node: ast.AST) -> str:
    """Say why another kind of a function harms nothing; empty if it does."""
    has_yield = any(isinstance(one, ast.Yield) for one in ast.walk(node))
    return "a generator is no coroutine either" if has_yield else ""


_releases: dict[str, Release] = {}


def release(version: str, forget: Callable[[], None]) -> Release:
    if version not in _releases:
        _releases.clear()
        forget()
        _releases[version] = Release(version)
    return _releases[version]


_NAMED = re.compile(r"srt/agentcore/[\w/]+\.py|\([\w-]+/[\w-]+\)")


@pytest.mark.parametrize("part", range(N_PARTS))
@pytest.mark.parametrize("version", VERSIONS)
def test_a_mutant_is_refused_or_harmless(
    version: str,
    part: int,
    planned_once: Callable[[], None],
) -> None:
    of = release(version, planned_once)
    survivors = []
    for mutant in of.mutants()[part::N_PARTS]:
        message = of.refusal(mutant)
        if message is None and not mutant.harmless:
            survivors.append(mutant.what)
        elif message is not None:
            # A landing module, or a hook of the patches by its name.
            assert _NAMED.search(message), (mutant.what, message)
    assert not survivors


RENAMES = """
    srt/managers/scheduler.py: Scheduler last_batch running_batch
    srt/managers/schedule_batch.py: ScheduleBatch is_empty merge_batch
    srt/lora/lora_registry.py: LoRARegistry _counters get_all_adapters release
    srt/lora/lora_registry.py: LoRARef lora_id lora_name lora_path
    srt/managers/io_struct.py: LoRAUpdateOutput success
    srt/managers/tokenizer_manager.py: ReqState out_list
    srt/sampling/custom_logit_processor.py: CustomLogitProcessor from_str
    srt/utils/aio_rwlock.py: RWLock writer_lock
    srt/entrypoints/openai/protocol.py: ChatCompletionResponseChoice finish_reason
"""
"""Names of classes that the planner once let every release rename."""


@pytest.mark.parametrize("version", ("0.5.11", "0.5.15.post1", "0.5.17", "0.5.23"))
def test_a_rename_that_once_planned_clean_is_refused(
    version: str, planned_once: Callable[[], None]
) -> None:
    of = release(version, planned_once)
    for line in RENAMES.strip().splitlines():
        file, _, names = line.strip().partition(": ")
        owner, *members = names.split()
        bases = of.install._with_bases(Class(file, owner))
        files = sorted({base.file for _, base in bases if base is not None})
        for name in members:
            [mutant] = of.renamed(f"{owner}.{name}", files, name)
            message = of.refusal(mutant)
            assert message and f"`{name}`" in message, (owner, name, message)
            assert _NAMED.search(message), (owner, name, message)
