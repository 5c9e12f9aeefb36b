"""The only writer: brings an install's files to other texts, all of them or none."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import Enum

from agentcore_patches.bytecode import read_bytecode, unused_mtime
from agentcore_patches.errors import AccessError, SourceConflict
from agentcore_patches.files import FileInfo, access_errors, digest, read, same_content
from agentcore_patches.install import Install
from agentcore_patches.journal import StateFolder
from agentcore_patches.records import Change, FileRecord, Journal, Record

_UNCHANGED = "Nothing was changed."


class FileState(str, Enum):
    """What has become of a file that patches change."""

    ORIGINAL = "original"
    """Without patches: as before `apply`, or as in the wheel."""
    PATCHED = "patched"
    """As `apply` wrote it, byte for byte."""
    EDITED = "edited"
    """Patched, and changed by somebody since."""
    REPLACED = "replaced"
    """Another text without patches: after a reinstall or another checkout."""
    MISSING = "missing"
    """The file does not exist."""


@dataclass(frozen=True)
class Snapshot:
    """The state of an install.

    Attributes:
        record: what the last command wrote down; None if no patch is applied.
        files: the state of each file of the record.
        pending: what a killed command left, as a noun phrase; None if nothing.
    """

    record: Record | None
    files: Mapping[str, FileState]
    pending: str | None

    @property
    def applied(self) -> bool:
        """Whether patches are in place, in all of their files."""
        return (
            self.record is not None
            and self.pending is None
            and all(state is FileState.PATCHED for state in self.files.values())
        )

    @property
    def changed(self) -> tuple[str, ...]:
        """Files that somebody else changed since they were patched."""
        known = (FileState.ORIGINAL, FileState.PATCHED)
        return tuple(path for path, state in self.files.items() if state not in known)

    @property
    def superseded(self) -> bool:
        """Whether there is a record, but no file holds any of the patches any more."""
        gone = (FileState.ORIGINAL, FileState.REPLACED)
        return self.record is not None and all(
            state in gone for state in self.files.values()
        )

    def holds(self, patches: Sequence[str], tool_version: str) -> bool:
        """Whether exactly these patches are in place, applied by this version."""
        return (
            self.record is not None
            and self.applied
            and set(self.record.patches) == set(patches)
            and self.record.tool_version == tool_version
        )


def inspect(install: Install) -> Snapshot:
    """The state of an install. Only reads; takes no lock.

    Raises:
        AccessError: a file of ours or of SGLang could not be read.
    """
    folder = StateFolder(install.package)
    with access_errors(install.package, _UNCHANGED):
        for _ in range(20):
            stamps = folder.stamps()
            snapshot = _look(install, folder)
            if folder.stamps() == stamps:
                break
    return snapshot


def sources(
    install: Install, snapshot: Snapshot, paths: Iterable[str]
) -> dict[str, bytes]:
    """The original texts, which patches are made in, by path below the package.

    Raises:
        SourceConflict: a file is missing, or was edited since it was patched.
        AccessError: a file could not be read.
    """
    return _Originals(install, snapshot).texts(paths)


def to_restore(install: Install, snapshot: Snapshot, *, force: bool) -> tuple[str, ...]:
    """The files that `revert` restores, in that order.

    Raises:
        SourceConflict: somebody else changed a file, and no `force`.
    """
    record = snapshot.record
    if record is None:
        return ()
    newer = record.sglang_version != install.version
    theirs = [
        path
        for path in snapshot.changed
        if not (newer and snapshot.files[path] is FileState.REPLACED)
    ]
    if theirs and not force:
        raise SourceConflict(
            f"Somebody changed patched files: {', '.join(theirs)} in {install.package}. "
            f"{_UNCHANGED} Undo these changes, or restore the original files with "
            "`agentcore-patch revert --force`, which loses them."
        )
    return tuple(
        path
        for path in reversed(list(record.files))
        if path in theirs or snapshot.files[path] is FileState.PATCHED
    )


def inspect_and_recover(install: Install) -> tuple[Snapshot, str | None]:
    """`inspect`, after finishing or undoing what a killed command left, if possible.

    The second value says in one line what was finished or undone, or why it was not;
    None if there was nothing to do.

    Raises:
        AccessError: a file of ours or of SGLang could not be read.
    """
    snapshot = inspect(install)
    if snapshot.pending is None:
        return snapshot, None
    try:
        with locked(install, timeout=0) as transaction:
            return transaction.snapshot, transaction.recovered
    except AccessError as error:
        return inspect(install), str(error)


@contextmanager
def locked(
    install: Install,
    *,
    timeout: float = 60.0,
    on_wait: Callable[[str], None] = lambda line: None,
) -> Iterator[Transaction]:
    """Lock an install, and finish or undo what a killed command left.

    Waits up to `timeout` seconds for another command; `on_wait` is then called once,
    with a line that says which process has the lock.

    Raises:
        AccessError: no permission, a read-only or full disk, or the wait was too long.
    """
    folder = StateFolder(install.package)
    with access_errors(install.package, _UNCHANGED):
        lock = folder.acquire(timeout, on_wait)
    try:
        with access_errors(install.package, "The command was not started."):
            recovered = folder.recover()
        yield Transaction(install, folder, recovered)
    except BaseException:
        with suppress(OSError):
            folder.release(lock)
        raise
    with access_errors(install.package, f"Only {folder.path} was left over."):
        folder.release(lock)


class Transaction:
    """A locked install, for one `commit` or `revert`.

    Attributes:
        recovered: what was finished or undone of a killed command, in one line.
        snapshot: the state after that.
    """

    def __init__(
        self, install: Install, folder: StateFolder, recovered: str | None
    ) -> None:
        self.recovered = recovered
        self.snapshot = replace(inspect(install), pending=None)
        self._install = install
        self._folder = folder
        self._originals = _Originals(install, self.snapshot)

    def sources(self, paths: Iterable[str]) -> dict[str, bytes]:
        """The original texts, which patches are made in, by path below the package.

        Raises:
            SourceConflict: a file is missing, or was edited since it was patched.
            AccessError: a file could not be read.
        """
        return self._originals.texts(paths)

    def commit(
        self, files: Mapping[str, bytes], *, patches: Sequence[str], tool_version: str
    ) -> tuple[str, ...]:
        """Make `files` the only files that differ from the original texts.

        Files that were patched and are not in `files` are restored first, last one
        first; then those in `files` are replaced, in the order given. Returns the paths
        that changed.

        Raises:
            SourceConflict: a file is missing, or somebody else changed it.
            AccessError: something could not be read or written; nothing was changed.
        """
        record = self.snapshot.record
        old = dict(record.files) if record else {}
        leaving = [path for path in reversed(old) if path not in files]
        changes, entries = [], {}
        with access_errors(self._install.package, _UNCHANGED):
            for path in [*leaving, *files]:
                original, text = self._originals.file(path)
                before = self._originals.present(path) or original
                caches = self._store_bytecode(path)
                ours = self.snapshot.files.get(path) is FileState.PATCHED
                first_caches = old[path].caches if ours else caches
                new = files.get(path, text)
                if new == text:
                    after = self._restored(path, original) if ours else before
                    change = Change(path, before, after, caches, first_caches)
                else:
                    after = self._new_info(path, before, new)
                    change = Change(path, before, after, caches, {})
                    entries[path] = FileRecord(original, after.sha256, first_caches)
                if not same_content(before, after):
                    changes.append(change)
                    self._store(path, text, new)
            state = Record(tool_version, self._install.version, tuple(patches), entries)
            return self._carry_out(
                f"apply of {', '.join(patches)}", changes, state if entries else None
            )

    def revert(self, *, force: bool = False) -> tuple[str, ...]:
        """Restore every patched file. Returns the paths that changed.

        A file that came with another version of SGLang since is left as it is. With
        `force`, files that somebody else changed are restored too; that change is lost.

        Raises:
            SourceConflict: somebody else changed a file, and no `force`.
            AccessError: something could not be read or written; nothing was changed.
        """
        record = self.snapshot.record
        if record is None:
            return ()
        paths = to_restore(self._install, self.snapshot, force=force)
        changes = []
        with access_errors(self._install.package, _UNCHANGED):
            for path in paths:
                entry = record.files[path]
                before = self._originals.present(path)
                after = self._restored(path, entry.original)
                caches = self._store_bytecode(path)
                changes.append(Change(path, before, after, caches, entry.caches))
                self._store(path)
            return self._carry_out("revert", changes, None)

    def _carry_out(
        self, action: str, changes: Sequence[Change], state: Record | None
    ) -> tuple[str, ...]:
        if changes or state != self.snapshot.record:
            journal = Journal(action, tuple(changes), clears=state is None)
            self._folder.carry_out(journal, state)
        return tuple(change.path for change in changes)

    def _store(self, path: str, *texts: bytes) -> None:
        """Store texts, and the present one of a path."""
        for text in (*texts, self._originals.present_text(path)):
            if text is not None:
                self._folder.store_text(text)

    def _store_bytecode(self, path: str) -> dict[str, FileInfo]:
        caches = read_bytecode(self._install.package, path)
        for _, text in caches.values():
            self._folder.store_text(text)
        return {cache: info for cache, (info, _) in caches.items()}

    def _new_info(self, path: str, before: FileInfo, text: bytes) -> FileInfo:
        now = unused_mtime(self._install.package / path, time.time_ns())
        return replace(
            before, sha256=digest(text), size=len(text), mtime_ns=now, link=None
        )

    def _restored(self, path: str, original: FileInfo) -> FileInfo:
        """The original; as a regular file if its link points to another text by now."""
        self._folder.load_text(original.sha256)
        if original.link is not None:
            place = (self._install.package / path).parent / original.link
            behind = read(place)
            if behind is None or behind[0].sha256 != original.sha256:
                return replace(original, link=None)
        return original


class _Originals:
    """The original files, and the files as they were when first asked for."""

    def __init__(self, install: Install, snapshot: Snapshot) -> None:
        self._package = install.package
        self._snapshot = snapshot
        self._folder = StateFolder(install.package)
        self._seen: dict[str, tuple[FileInfo, bytes] | None] = {}

    def texts(self, paths: Iterable[str]) -> dict[str, bytes]:
        with access_errors(self._package, _UNCHANGED):
            return {path: self.file(path)[1] for path in paths}

    def present(self, path: str) -> FileInfo | None:
        seen = self._look(path)
        return seen and seen[0]

    def present_text(self, path: str) -> bytes | None:
        seen = self._look(path)
        return seen and seen[1]

    def file(self, path: str) -> tuple[FileInfo, bytes]:
        """The saved original if the file is patched, else the present file."""
        seen = self._look(path)
        state = self._snapshot.files.get(path)
        if seen is None:
            raise SourceConflict(
                f"{self._package / path} is missing. {_UNCHANGED} Restore the file, or "
                "reinstall SGLang."
            )
        if state is FileState.EDITED:
            raise SourceConflict(
                f"{self._package / path} was changed after agentcore-patch patched it, "
                f"and cannot be patched again with that change. {_UNCHANGED} Undo the "
                "change, or restore the original with `agentcore-patch revert --force` "
                "(which loses the change), make it there again, and apply."
            )
        if state is FileState.PATCHED and self._snapshot.record is not None:
            info = self._snapshot.record.files[path].original
            return info, self._folder.load_text(info.sha256)
        return seen

    def _look(self, path: str) -> tuple[FileInfo, bytes] | None:
        if path not in self._seen:
            self._seen[path] = read(self._package / path)
        return self._seen[path]


def _look(install: Install, folder: StateFolder) -> Snapshot:
    journal = folder.journal()
    record = folder.record()
    pending = None
    if journal is not None:
        pending = f"an interrupted {journal.action}"
    elif record is None and folder.path.exists():
        pending = "leftovers of an interrupted command"
    states = {
        path: _state(install, folder, path, entry)
        for path, entry in (record.files.items() if record else ())
    }
    return Snapshot(record, states, pending)


def _state(
    install: Install, folder: StateFolder, path: str, entry: FileRecord
) -> FileState:
    try:
        text = (install.package / path).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return FileState.MISSING
    name = digest(text)
    if name == entry.patched:
        return FileState.PATCHED
    if name in (entry.original.sha256, install.wheel_hashes([path]).get(path)):
        return FileState.ORIGINAL
    try:
        patched = _lines(folder.load_text(entry.patched))
        ours = patched - _lines(folder.load_text(entry.original.sha256))
    except (OSError, AccessError):
        return FileState.EDITED
    return FileState.EDITED if ours & _lines(text) else FileState.REPLACED


def _lines(text: bytes) -> set[bytes]:
    return {line.strip() for line in text.splitlines()}
