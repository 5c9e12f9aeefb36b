"""Mutants of SGLang at every seam: each lacks something that new code uses.

Each name in the stubs, and each parameter, has mutants with another name in its place:
everywhere, or only where it is defined. The planner must refuse a mutant and name the
landing module or the hook, unless it is harmless. `RENAMES` has more: a person chose them,
not the stubs. What else a stub says is tested by `tests/unit/test_stubs.py`.

`make seams` runs all releases. `docs/writing-a-patch.md` lists the limits of mutants.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import pytest

from agentcore_patches.edits import AddField, ScopedEdit
from agentcore_patches.errors import SourceConflict
from agentcore_patches.patches.releases import is_between
from agentcore_patches.planning import stubs
from agentcore_patches.planning.classes import (
    Found,
    Function,
    Install,
    comes_with,
    parameters,
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
        harmless: True if nothing needs what it lacks.
    """

    what: str
    texts: tuple[tuple[str, bytes], ...]
    harmless: bool = False


class Release:
    """A release, its edits, and what they need."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.edits = list(Selection(NAMES, version).edits)
        files = sources(version), partial(read, version)
        self.install, self.stock = Install(*files, self.edits), Install(*files, ())

    def text(self, file: str) -> bytes:
        return (self.install.text(file) or "").encode()

    def renamed(
        self, what: str, files: Iterable[str], word: str, harmless: bool = False
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
        made = [
            mutant
            for use in stubs.uses()
            if is_between(self.version, use.since, use.until)
            and stubs._user(use, self.edits)
            for mutant in self._of_use(use)
        ]
        return list({mutant.texts: mutant for mutant in made}.values())

    def _of_use(self, use: Use) -> Iterator[Mutant]:
        found = self.install.find(use.file, use.owner or use.name)
        if not use.owner:
            files = {use.file, found.file if found else use.file}
            yield from self.renamed(f"name {use.name}", sorted(files), use.name)
            if found and isinstance(use.node, Function):
                yield from self._of_function(found, use.node)
            return
        assert found is not None
        if use.name not in ("__init__", "__dict__", "__weakref__"):
            yield from self._without_attribute(found, use.name)
        if not isinstance(use.node, Function):
            return
        method = self.install.method(found, use.name)
        if method is not None:
            yield from self._of_function(method, use.node)
        elif use.name == "__init__":
            for argument in use.node.args.kwonlyargs:
                yield from self._without_attribute(found, argument.arg)

    def _of_function(self, found: Found, stub: Function) -> Iterator[Mutant]:
        """Yield mutants whose function cannot be called like its stub."""
        assert found.function is not None
        for argument in (*stub.args.args, *stub.args.kwonlyargs):
            name = argument.arg
            if name in parameters(found.function) - {"self", "cls"}:
                new = surgery.substituted(
                    self.text(found.file), found.node, name, f"{name}{FORK}"
                )
                yield Mutant(f"parameter {name} of {found.name}", ((found.file, new),))

    def _without_attribute(self, owner: Found, attribute: str) -> Iterator[Mutant]:
        """Yield mutants in which no class of SGLang's defines an attribute."""
        bases = self.install.bases(owner)
        found = [base for _, base in bases if base is not None]
        harmless = any(
            comes_with(name, attribute) if base is None else self._adds(base, attribute)
            for name, base in bases
        )
        what = f"attribute {owner.name}.{attribute}"
        files = sorted({base.file for base in found})
        yield from self.renamed(what, files, attribute, harmless)
        only_read = {file: self.text(file) for file in files}
        for base in found:
            only_read[base.file] = surgery.undefined(
                only_read[base.file], base.node, attribute, FORK
            )
        changed = {
            file: new for file, new in only_read.items() if new != self.text(file)
        }
        if changed:
            yield Mutant(f"{what}, only read", tuple(changed.items()), harmless)

    def _adds(self, owner: Found, attribute: str) -> bool:
        """True if the patches add an attribute to a class."""
        return any(
            edit.file == owner.file
            and edit.scope in (owner.name, f"{owner.name}.__init__")
            and re.search(rf"^(self\.)?{attribute}\b", edit.new_code, re.MULTILINE)
            for edit in self.edits
            if isinstance(edit, ScopedEdit)
        )

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
            install = Install(changed, read_mutant, self.edits)
            stubs.refuse_missing(self.edits, install, self.version)
            make_plan(changed, Selection(NAMES, self.version), read_mutant)
        except SourceConflict as refused:
            return str(refused)
        return None


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
        found = of.install.find(file, owner)
        assert found is not None
        bases = of.install.bases(found)
        files = sorted({base.file for _, base in bases if base is not None})
        for name in members:
            [mutant] = of.renamed(f"{owner}.{name}", files, name)
            message = of.refusal(mutant)
            assert message and f"`{name}`" in message, (owner, name, message)
            assert _NAMED.search(message), (owner, name, message)


NOT_OF_SGLANG = {
    *("add", "add_task", "append", "clamp_", "field", "get", "json", "pop", "push"),
    *("incremental", "send_pyobj", "setdefault", "startswith", "trace"),
}
"""Attributes that hooks read of values which are not SGLang's own, or are landed."""


@pytest.mark.parametrize("version", FAMILIES)
def test_the_stubs_have_every_attribute_that_a_hook_uses(version: str) -> None:
    edits = list(Selection(NAMES, version).edits)
    known = {
        use.name
        for use in stubs.uses()
        if use.owner and is_between(version, use.since, use.until)
    }
    known |= {name for e in edits if isinstance(e, AddField) for name in e.fields}
    for edit in edits:
        code = ast.parse(re.sub(r"\bagentcore(\.\w+)+", "landed", edit.new_code))
        used = {node.attr for node in ast.walk(code) if isinstance(node, ast.Attribute)}
        assert used <= known | NOT_OF_SGLANG, edit.name
