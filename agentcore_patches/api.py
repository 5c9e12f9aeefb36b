"""`apply`, `status`, `revert` for a program: typed results, typed errors, no printing.

Nothing here imports libcst until sources have to be planned: to tell that all is in
place takes hashes only.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from agentcore_patches import install as installs
from agentcore_patches import transaction
from agentcore_patches._version import __version__
from agentcore_patches.errors import (
    AccessError,
    AgentcoreError,
    SourceConflict,
    UsageError,
)
from agentcore_patches.files import FOLDER
from agentcore_patches.install import Install
from agentcore_patches.patches import registry
from agentcore_patches.patches.versions import SUPPORTED_VERSIONS
from agentcore_patches.transaction import FileState, Snapshot

if TYPE_CHECKING:
    from agentcore_patches.plan import EditOutcome, Plan

StrPath: TypeAlias = str | os.PathLike[str]
Notify: TypeAlias = Callable[[str], None]

# How every comment of ours begins.
MARK = b"# agentcore-patch: "


@dataclass(frozen=True)
class FileChange:
    """What `apply` did to one file, or would do in a dry run.

    Attributes:
        path: below the `sglang` package.
        applied: edits made in the original text.
        present: edits that the original text had already.
        action: `restored` is a file of an earlier selection of patches only.
        pristine: whether the original is the wheel's file; None: nothing tells.
        diff: from the text before to the text after; empty unless asked for.
    """

    path: str
    applied: int
    present: int
    action: Literal["patched", "restored", "unchanged"]
    pristine: bool | None
    diff: str


@dataclass(frozen=True)
class ApplyResult:
    """What `apply` found and did.

    Attributes:
        install: the SGLang it was about.
        patches: those that are in place now; in a dry run, that would be.
        removed: those of an earlier selection that are out now, or would be.
        files: in writing order; empty if a look at hashes showed nothing to do.
        edits: one for each edit of each patch; empty as `files` is.
        changed: whether any file was changed; in a dry run, would be.
        dry_run: whether nothing was to be written.
        recorded: False if the patches were in the sources already and nothing tells
            what was there before them, so that `revert` cannot take them out.
        recovered: what was put right of an interrupted command, in one line.
    """

    install: Install
    patches: tuple[str, ...]
    removed: tuple[str, ...]
    files: tuple[FileChange, ...]
    edits: tuple[EditOutcome, ...]
    changed: bool
    dry_run: bool
    recorded: bool
    recovered: str | None


class PatchState(str, Enum):
    """What is left of a patch in an install."""

    IN_PLACE = "in place"
    OUTDATED = "outdated"
    """In place as another version of this package wrote it."""
    CHANGED = "changed"
    """In place, but not whole: files were changed, or a command was interrupted."""
    ABSENT = "not applied"


@dataclass(frozen=True)
class FileStatus:
    """What one file is now.

    Attributes:
        path: below the `sglang` package.
        state: ORIGINAL too if it was never patched.
        pristine: whether it is the wheel's file, or was before it was patched; None:
            nothing tells.
    """

    path: str
    state: FileState
    pristine: bool | None


@dataclass(frozen=True)
class StatusResult:
    """What is in place.

    Attributes:
        install: the SGLang it is about.
        patches: the state of every patch, by name.
        wanted: the names of those asked about.
        applied_by: the version of this package that applied them; None: none did, or
            nothing tells.
        recorded: False if patches are in the sources and nothing tells what was there
            before them.
        files: every file that a patch changes.
        pending: what an interrupted command left and could not be put right now.
        recovered: what was put right of it, or why it was not, in one line.
    """

    install: Install
    patches: Mapping[str, PatchState]
    wanted: tuple[str, ...]
    applied_by: str | None
    recorded: bool
    files: tuple[FileStatus, ...]
    pending: str | None
    recovered: str | None

    @property
    def complete(self) -> bool:
        """Whether every patch asked about is in place, whole and up to date."""
        return all(self.patches[name] is PatchState.IN_PLACE for name in self.wanted)


@dataclass(frozen=True)
class RevertResult:
    """What `revert` did.

    Attributes:
        install: the SGLang it was about.
        patches: those that were taken out.
        files: those that were given back, each with what it is now.
        changed: whether any file was changed.
        recovered: what was put right of an interrupted command, in one line.
    """

    install: Install
    patches: tuple[str, ...]
    files: tuple[FileStatus, ...]
    changed: bool
    recovered: str | None


@dataclass(frozen=True)
class PatchInfo:
    """A patch that can be applied: its name, what it gives, the files it changes."""

    name: str
    summary: str
    files: tuple[str, ...]


def apply(
    *,
    sglang_dir: StrPath | None = None,
    python: StrPath | None = None,
    only: Sequence[str] = (),
    dry_run: bool = False,
    diff: bool = False,
    lock_timeout: float = 60.0,
    notify: Notify | None = None,
) -> ApplyResult:
    """Bring an SGLang to its original texts with exactly these patches in them.

    Args:
        sglang_dir: the `sglang` package folder, the one that holds `srt/`.
        python: the interpreter whose SGLang it is. With neither, this one's.
        only: names of patches; all of them if empty.
        dry_run: plan and tell, but leave SGLang's files as they are.
        diff: tell what changes in each file.
        lock_timeout: seconds to wait for another command.
        notify: told, in one line each, of a wait and of what was put right.

    Raises:
        UsageError, UnsupportedTarget, SourceConflict, AccessError: nothing was changed.
    """
    patches = _selected(only)
    install = _find(sglang_dir, python)
    tool_version = _tool_version()
    notify = notify or _ignore

    if dry_run:
        snapshot, recovered = transaction.inspect_and_recover(install)
        _tell(notify, recovered)
        if snapshot.holds(patches, tool_version):
            return _nothing_to_do(install, patches, recovered, dry_run=True)
        change = _Change(
            install,
            patches,
            snapshot,
            lambda paths: transaction.sources(install, snapshot, paths),
        )
        return change.result(change.paths, diff=diff, dry_run=True, recovered=recovered)

    if transaction.inspect(install).holds(patches, tool_version):
        return _nothing_to_do(install, patches)
    with transaction.locked(install, timeout=lock_timeout, on_wait=notify) as writer:
        _tell(notify, writer.recovered)
        if writer.snapshot.holds(patches, tool_version):
            return _nothing_to_do(install, patches, writer.recovered)
        change = _Change(install, patches, writer.snapshot, writer.sources)
        changed = writer.commit(
            change.plan.files, patches=patches, tool_version=tool_version
        )
    return change.result(changed, diff=diff, dry_run=False, recovered=writer.recovered)


def status(
    *,
    sglang_dir: StrPath | None = None,
    python: StrPath | None = None,
    only: Sequence[str] = (),
    notify: Notify | None = None,
) -> StatusResult:
    """What is in place; what an interrupted command left is put right, if it may be.

    Args:
        sglang_dir, python, notify: as for `apply`.
        only: the patches that `complete` is about; all of them if empty.

    Raises:
        UsageError, UnsupportedTarget, AccessError
    """
    wanted = _selected(only)
    install = _find(sglang_dir, python)
    snapshot, recovered = transaction.inspect_and_recover(install)
    _tell(notify or _ignore, recovered)

    record = None if snapshot.superseded else snapshot.record
    now = _texts(install, _unpatched(snapshot))
    marked = snapshot.pending is None and any(MARK in text for text in now.values())
    recorded = record is not None or not marked
    held = record.patches if record else () if recorded else _held(install, now)
    state = _state_of_patches(snapshot)
    names = dict.fromkeys([*registry.names(), *held])
    return StatusResult(
        install=install,
        patches={name: state if name in held else PatchState.ABSENT for name in names},
        wanted=wanted,
        applied_by=_shown(record.tool_version) if record else None,
        recorded=recorded,
        files=_file_statuses(install, snapshot, now),
        pending=snapshot.pending,
        recovered=recovered,
    )


def revert(
    *,
    sglang_dir: StrPath | None = None,
    python: StrPath | None = None,
    force: bool = False,
    lock_timeout: float = 60.0,
    notify: Notify | None = None,
) -> RevertResult:
    """Give back every byte that was there before the first `apply`.

    Args:
        sglang_dir, python, lock_timeout, notify: as for `apply`.
        force: give back also files that somebody changed since; that change is lost.

    Raises:
        UsageError, UnsupportedTarget, AccessError: nothing was changed.
        SourceConflict: the same, because a file was changed since, or because nothing
            tells what was there before the patches.
    """
    install = _find(sglang_dir, python)
    notify = notify or _ignore
    snapshot = transaction.inspect(install)
    changed: tuple[str, ...] = ()
    recovered = None
    if snapshot.record is not None or snapshot.pending is not None:
        with transaction.locked(
            install, timeout=lock_timeout, on_wait=notify
        ) as writer:
            recovered = writer.recovered
            _tell(notify, recovered)
            snapshot = writer.snapshot
            changed = writer.revert(force=force)
    if snapshot.record is None:
        _refuse_unrecorded(install)
    texts = _texts(install, changed)
    wheel = _pristine(install, texts)
    return RevertResult(
        install=install,
        patches=snapshot.record.patches if snapshot.record else (),
        files=tuple(
            FileStatus(path, FileState.ORIGINAL, wheel[path]) for path in texts
        ),
        changed=bool(changed),
        recovered=recovered,
    )


def apply_patch() -> bool:
    """Apply all patches to the SGLang of this interpreter; never raises.

    Returns True if any file was changed. False if all was in place already, SGLang was
    not found or patching failed; the log (`agentcore_patches`) has the reason.
    """
    import logging

    log = logging.getLogger("agentcore_patches")
    try:
        result = apply(notify=log.info)
    except AgentcoreError as error:
        log.error("SGLang was not patched: %s", error)
        return False
    except Exception:
        log.exception("SGLang was not patched, by a bug of agentcore-patch")
        return False
    where = f"SGLang {result.install.version} in {result.install.package}"
    names = ", ".join(result.patches)
    log.info("%s in %s: %s", "now" if result.changed else "already", where, names)
    if result.changed and "sglang.srt" in sys.modules:
        log.warning(
            "SGLang was imported before it was patched: this process runs on unpatched"
        )
    return result.changed


def available() -> tuple[PatchInfo, ...]:
    """The patches there are, as for the newest supported SGLang."""
    version = SUPPORTED_VERSIONS[-1]
    return tuple(
        PatchInfo(name, registry.summary(name), registry.files([name], version))
        for name in registry.names()
    )


class _Change:
    """The way from what an install holds to its originals with patches in them."""

    def __init__(
        self,
        install: Install,
        patches: tuple[str, ...],
        snapshot: Snapshot,
        sources: Callable[[Iterable[str]], dict[str, bytes]],
    ) -> None:
        from agentcore_patches.plan import make_plan

        ours = [p for p, state in snapshot.files.items() if state is FileState.PATCHED]
        files = registry.files(patches, install.release)
        record = None if snapshot.superseded else snapshot.record
        before = record.patches if record else ()
        self.install = install
        self.removed = tuple(name for name in before if name not in patches)
        self.originals = sources(dict.fromkeys([*files, *ours]))
        self.plan: Plan = make_plan(self.originals, patches, install.release)
        self.before = _texts(install, self.originals)
        self.after = {**self.originals, **self.plan.files}

    @property
    def paths(self) -> tuple[str, ...]:
        """Files that are not yet what they are to be."""
        return tuple(p for p, text in self.after.items() if self.before.get(p) != text)

    def result(
        self,
        changed: Sequence[str],
        *,
        diff: bool,
        dry_run: bool,
        recovered: str | None,
    ) -> ApplyResult:
        return ApplyResult(
            install=self.install,
            patches=self.plan.patches,
            removed=self.removed,
            files=self._files(changed, diff),
            edits=self.plan.outcomes,
            changed=bool(changed),
            dry_run=dry_run,
            recorded=bool(self.plan.files),
            recovered=recovered,
        )

    def _files(self, changed: Sequence[str], diff: bool) -> tuple[FileChange, ...]:
        wheel = _pristine(self.install, self.originals)
        # An edit that several patches share is made once.
        edits = {
            (e.file, e.scope, e.description, e.outcome) for e in self.plan.outcomes
        }
        counts = Counter((file, outcome) for file, _, _, outcome in edits)
        return tuple(
            FileChange(
                path=path,
                applied=counts[path, "applied"],
                present=counts[path, "present"],
                action="unchanged"
                if path not in changed
                else "patched"
                if path in self.plan.files
                else "restored",
                pristine=None if counts[path, "present"] else wheel[path],
                diff=_diff(path, self.before[path], self.after[path]) if diff else "",
            )
            for path in self.originals
        )


def _nothing_to_do(
    install: Install,
    patches: tuple[str, ...],
    recovered: str | None = None,
    *,
    dry_run: bool = False,
) -> ApplyResult:
    return ApplyResult(
        install=install,
        patches=patches,
        removed=(),
        files=(),
        edits=(),
        changed=False,
        dry_run=dry_run,
        recorded=True,
        recovered=recovered,
    )


def _selected(only: Sequence[str]) -> tuple[str, ...]:
    names = registry.names()
    unknown = [name for name in only if name not in names]
    if unknown:
        raise UsageError(
            f"There is no patch named {', '.join(unknown)}; there are {', '.join(names)}."
        )
    return tuple(name for name in names if name in only) if only else names


def _find(sglang_dir: StrPath | None, python: StrPath | None) -> Install:
    return installs.find(
        Path(sglang_dir) if sglang_dir is not None else None,
        Path(python) if python is not None else None,
        supported=SUPPORTED_VERSIONS,
    )


def _tool_version() -> str:
    """This version and what its patches are: a changed patch replaces the old one."""
    return f"{__version__}+{registry.fingerprint()[:12]}"


def _shown(tool_version: str) -> str:
    return tool_version.rpartition("+")[0]


def _texts(install: Install, paths: Iterable[str]) -> dict[str, bytes]:
    """What files hold now; those that are missing are left out."""
    texts = {}
    for path in paths:
        try:
            with suppress(FileNotFoundError, NotADirectoryError):
                texts[path] = (install.package / path).read_bytes()
        except OSError as error:
            raise AccessError(
                f"Cannot read {error.filename}: {error.strerror}. Nothing was changed."
            ) from error
    return texts


def _pristine(install: Install, texts: Mapping[str, bytes]) -> dict[str, bool | None]:
    """Whether texts, by path, are those of the wheel."""
    return installs.pristine(
        install,
        {path: hashlib.sha256(text).hexdigest() for path, text in texts.items()},
    )


def _unpatched(snapshot: Snapshot) -> list[str]:
    """Files whose own text tells whether they are as released."""
    ours = (FileState.PATCHED, FileState.EDITED)
    paths = dict.fromkeys([*registry.WRITING_ORDER, *snapshot.files])
    return [path for path in paths if snapshot.files.get(path) not in ours]


def _file_statuses(
    install: Install, snapshot: Snapshot, now: Mapping[str, bytes]
) -> tuple[FileStatus, ...]:
    """Every watched file and every recorded one; `now`: texts of `_unpatched` ones."""
    marked = {path for path, text in now.items() if MARK in text}
    recorded = snapshot.record.files if snapshot.record else {}
    hashes = {path: entry.original.sha256 for path, entry in recorded.items()}
    hashes |= {path: hashlib.sha256(text).hexdigest() for path, text in now.items()}
    known = {path: digest for path, digest in hashes.items() if path not in marked}
    wheel = installs.pristine(install, known)
    states = dict.fromkeys(registry.WRITING_ORDER, FileState.MISSING)
    states |= dict.fromkeys(now, FileState.ORIGINAL)
    states |= dict.fromkeys(marked, FileState.PATCHED)
    states |= snapshot.files
    return tuple(
        FileStatus(path, state, wheel.get(path)) for path, state in states.items()
    )


def _state_of_patches(snapshot: Snapshot) -> PatchState:
    """What the patches are that are there, recorded or not."""
    record = snapshot.record
    if record is None:
        return PatchState.IN_PLACE
    if not snapshot.applied:
        return PatchState.CHANGED
    current = record.tool_version == _tool_version()
    return PatchState.IN_PLACE if current else PatchState.OUTDATED


def _held(install: Install, texts: Mapping[str, bytes]) -> tuple[str, ...]:
    """The patches whose every edit is in these texts, by planning them again."""
    from agentcore_patches.plan import make_plan

    held = []
    for name in registry.names():
        with suppress(SourceConflict, KeyError):
            if not make_plan(texts, [name], install.release).files:
                held.append(name)
    return tuple(held)


def _refuse_unrecorded(install: Install) -> None:
    marked = [
        p for p, text in _texts(install, registry.WRITING_ORDER).items() if MARK in text
    ]
    if marked:
        raise SourceConflict(
            f"{', '.join(marked)} in {install.package} carry patches of ours, but "
            f"nothing tells what was there before them: {FOLDER} is gone. "
            "Nothing was changed. To get the originals back, reinstall SGLang (`pip "
            f"install --force-reinstall --no-deps sglang=={install.release}`), or "
            "`git checkout` the files in a checkout."
        )


def _diff(path: str, before: bytes, after: bytes) -> str:
    """A unified diff that `patch -p1` takes beside the package folder."""
    import difflib

    if before == after:
        return ""
    lines = difflib.unified_diff(
        _lines(before), _lines(after), f"a/sglang/{path}", f"b/sglang/{path}"
    )
    ended = (
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
        for line in lines
    )
    return "".join(ended)


def _lines(text: bytes) -> list[str]:
    decoded = text.decode("utf-8", errors="backslashreplace")
    *lines, last = decoded.split("\n")
    return [f"{line}\n" for line in lines] + ([last] if last else [])


def _tell(notify: Notify, line: str | None) -> None:
    if line is not None:
        notify(line)


def _ignore(line: str) -> None:
    """Tell nobody."""
