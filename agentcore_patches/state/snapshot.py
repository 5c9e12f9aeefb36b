"""The state of an install; read only."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path

from agentcore_patches.disk.filesystem import FOLDER, digest, read_bytes
from agentcore_patches.disk.privileges import access
from agentcore_patches.errors import AccessError
from agentcore_patches.installs.install import Install
from agentcore_patches.installs.versions import same_release
from agentcore_patches.patches import registry
from agentcore_patches.patches.paths import LANDING
from agentcore_patches.state.ownership import is_created, is_ours, may_be_patched
from agentcore_patches.state.records import (
    FileRecord,
    JournalFile,
    Record,
    RecordFile,
    is_same_build,
)
from agentcore_patches.state.store import Store

UNCHANGED = "Nothing was changed."


class FileState(str, Enum):
    """State of a file that patches change."""

    ORIGINAL = "original"
    """Without patches: as before `apply`, or as in the wheel."""
    PATCHED = "patched"
    """As `apply` wrote it, byte for byte."""
    EDITED = "edited"
    """Patched, and changed since."""
    REPLACED = "replaced"
    """Another file without patches: after a reinstall or another checkout."""
    MISSING = "missing"
    """The file does not exist."""


_UNPATCHED = {FileState.ORIGINAL, FileState.REPLACED, FileState.MISSING}


@dataclass(frozen=True)
class Snapshot:
    """The state of an install.

    Attributes:
        record: the record of the last command; None if no patch is applied.
        files: the state of each file of the record.
        pending: the work of an unfinished command, as a noun phrase; None if there is none.
        sglang_change: how SGLang differs from the record's, as a clause; None if
            it is the same.
    """

    record: Record | None
    files: Mapping[str, FileState]
    pending: str | None
    sglang_change: str | None = None

    @property
    def applied(self) -> bool:
        """True if patches are in place, in all of their files."""
        return (
            self.record is not None
            and self.pending is None
            and all(state is FileState.PATCHED for state in self.files.values())
        )

    @property
    def changed(self) -> tuple[str, ...]:
        """Files that were edited or removed since they were patched."""
        return tuple(
            path
            for path, state in self.files.items()
            if state is FileState.EDITED
            or (state is FileState.MISSING and self.sglang_change is None)
        )

    @property
    def superseded(self) -> bool:
        """True if there is a record, but no file has any of the patches any more.

        Files that patches created do not count: pip leaves them where they are.
        """
        return _is_superseded(self.files)

    def holds(self, patches: Sequence[str], tool_version: str) -> bool:
        """True if exactly these patches are in place, applied by this version."""
        return (
            self.record is not None
            and self.applied
            and self.sglang_change is None
            and set(self.record.patches) == set(patches)
            and is_same_build(self.record.tool_version, tool_version)
        )


def inspect(install: Install) -> Snapshot:
    """Return the state of an install. Only reads; takes no lock.

    Raises:
        AccessError: a file of agentcore-patch or of SGLang cannot be read or trusted.
    """
    folder = install.package / FOLDER
    with access(install.package, UNCHANGED):
        require_own_folder(install.package)
        for _ in range(20):
            stamps = _stamps(folder)
            snapshot = _look(install, folder)
            if _stamps(folder) == stamps:
                break
    return snapshot


def require_own_folder(package: Path) -> None:
    """Raise AccessError if the state folder is a link, or another user's."""
    state = package / FOLDER
    for folder in (state, Store(state).folder):
        try:
            status = folder.lstat()
        except FileNotFoundError:
            continue
        owner = package.stat().st_uid
        problem = (
            "is a symbolic link"
            if stat.S_ISLNK(status.st_mode)
            else "is not a folder"
            if not stat.S_ISDIR(status.st_mode)
            else f"belongs to user {status.st_uid}, but the package to user {owner}"
            if status.st_uid != owner
            else None
        )
        if problem:
            raise AccessError(
                f"{folder} {problem}: agentcore-patch does not create it like this, and "
                f"does not trust it. {UNCHANGED}",
                hint="If the folder was moved, or given to another user, on purpose, put "
                "it back; otherwise remove it and reinstall SGLang.",
            )


def patched_files(package: Path) -> Iterator[str]:
    """Yield the files that contain patches, even if no record lists them."""
    for path in [*registry.EVER_PATCHED, *created_files(package)]:
        try:
            text = read_bytes(package / path, follow=True)
        except (FileNotFoundError, NotADirectoryError):
            continue
        if is_ours(path, text):
            yield path


def created_files(package: Path) -> list[str]:
    folder = package / LANDING
    found = () if folder.is_symlink() else folder.rglob("*.py")
    paths = (str(file.relative_to(package)) for file in found)
    return sorted(path for path in paths if may_be_patched(path))


def _stamps(folder: Path) -> list[tuple[int, int] | None]:
    """Return inode and time of record and journals, which every change by a command alters."""
    found: list[tuple[int, int] | None] = []
    for file in (RecordFile(folder).file, *JournalFile(folder).files):
        try:
            status = file.lstat()
            found.append((status.st_ino, status.st_mtime_ns))
        except FileNotFoundError:
            found.append(None)
    return found


def _look(install: Install, folder: Path) -> Snapshot:
    journal = JournalFile(folder).read()
    record = RecordFile(folder).read()
    pending = None
    if journal is not None:
        pending = f"an unfinished {journal.action}"
    elif record is None and folder.exists() and not _keeps_originals(install, folder):
        pending = "leftovers of an unfinished command"
    if record is None:
        return Snapshot(None, {}, pending)
    wheel = cache(lambda: install.wheel_hashes(record.files))
    states = {
        path: _state(install, path, file, wheel) for path, file in record.files.items()
    }
    if _is_superseded(states):
        for path, state in states.items():
            if is_created(path) and state is FileState.MISSING:
                states[path] = FileState.ORIGINAL
    change = None if journal else _sglang_change(install, record, states)
    return Snapshot(record, states, pending, change)


def _keeps_originals(install: Install, folder: Path) -> bool:
    """True if originals of patched files are stored, and only the record is gone."""
    stored = Store(folder).files()
    return bool(stored) and next(patched_files(install.package), None) is not None


def _sglang_change(
    install: Install, record: Record, states: Mapping[str, FileState]
) -> str | None:
    if not same_release(record.sglang_version, install.version):
        return f"SGLang changed from {record.sglang_version} to {install.version}"
    if FileState.REPLACED in states.values():
        return "SGLang's files were replaced by others"
    return None


def _is_superseded(states: Mapping[str, FileState]) -> bool:
    """True if none of SGLang's own files holds any of the patches any more."""
    own = {state for path, state in states.items() if not is_created(path)}
    return own <= _UNPATCHED and bool(own - {FileState.MISSING})


def _state(
    install: Install,
    path: str,
    entry: FileRecord,
    wheel: Callable[[], Mapping[str, str]],
) -> FileState:
    try:
        text = read_bytes(install.package / path, follow=True)
    except (FileNotFoundError, NotADirectoryError):
        return FileState.MISSING
    name = digest(text)
    if name == entry.patched_sha256:
        return FileState.PATCHED
    if entry.original and (name == entry.original.sha256 or name == wheel().get(path)):
        return FileState.ORIGINAL
    return FileState.EDITED if is_ours(path, text) else FileState.REPLACED
