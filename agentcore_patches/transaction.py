"""The only writer: brings an install's files to other texts, all of them or none."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import Enum

from .errors import AccessError, SourceConflict
from .files import Node, digest, read, same, typed_errors, unused_time
from .install import Install
from .journal import Change, FileRecord, Folder, Journal, Record, read_caches

_UNCHANGED = "Nothing was changed."


class FileState(str, Enum):
    """What a file that was patched is now."""

    ORIGINAL = "original"
    """As it was before `apply`, or as the wheel has it."""
    PATCHED = "patched"
    """Our text, byte for byte."""
    EDITED = "edited"
    """Our text with somebody's change."""
    REPLACED = "replaced"
    """Neither, and with nothing of ours in it: a reinstall, another checkout."""
    MISSING = "missing"
    """There is no such file."""


@dataclass(frozen=True)
class Snapshot:
    """The record, what each of its files is now, and what a killed command left."""

    record: Record | None
    files: Mapping[str, FileState]
    pending: str | None

    @property
    def applied(self) -> bool:
        """Whether patches are in place, every file of them."""
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
        """Whether there is a record, but nothing of the patches is left in any file."""
        gone = (FileState.ORIGINAL, FileState.REPLACED)
        return self.record is not None and all(
            state in gone for state in self.files.values()
        )

    def holds(self, patches: Sequence[str], tool_version: str) -> bool:
        """Whether exactly these patches, by this version of ours, are in place."""
        return (
            self.record is not None
            and self.applied
            and set(self.record.patches) == set(patches)
            and self.record.tool_version == tool_version
        )


def inspect(install: Install) -> Snapshot:
    """What is in place. Reads only, takes no lock.

    Raises:
        AccessError: a file of ours or of SGLang could not be read.
    """
    folder = Folder(install.package)
    with typed_errors(install.package, _UNCHANGED):
        for _ in range(20):
            marks = folder.marks()
            snapshot = _look(install, folder)
            if folder.marks() == marks:
                break
    return snapshot


def sources(
    install: Install, snapshot: Snapshot, paths: Iterable[str]
) -> dict[str, bytes]:
    """The texts that patches start from, by path below the package.

    Raises:
        SourceConflict: a file is missing, or was edited since it was patched.
        AccessError: a file could not be read.
    """
    return _Originals(install, snapshot).texts(paths)


def settle(install: Install) -> tuple[Snapshot, str | None]:
    """`inspect`, but what a killed command left is put right first, if it may be.

    The second value says in one line what was put right, or why it was not.

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
    """The install for this process alone, with what a killed command left put right.

    Waits up to `timeout` seconds for another command; `on_wait` is told once for whom.

    Raises:
        AccessError: no permission, a read-only or full disk, or the wait was too long.
    """
    folder = Folder(install.package)
    with typed_errors(install.package, _UNCHANGED):
        lock = folder.acquire(timeout, on_wait)
    try:
        with typed_errors(install.package, "This command was not begun."):
            recovered = folder.recover()
        yield Transaction(install, folder, recovered)
    except BaseException:
        with suppress(OSError):
            folder.release(lock)
        raise
    with typed_errors(install.package, f"Only {folder.path} is left over."):
        folder.release(lock)


class Transaction:
    """An install under the lock, for one `commit` or `revert`.

    `recovered` tells in one line what was put right on the way in, `snapshot` what was
    in place then.
    """

    def __init__(self, install: Install, folder: Folder, recovered: str | None) -> None:
        self.recovered = recovered
        self.snapshot = replace(inspect(install), pending=None)
        self._install = install
        self._folder = folder
        self._originals = _Originals(install, self.snapshot)

    def sources(self, paths: Iterable[str]) -> dict[str, bytes]:
        """The texts that patches start from, by path below the package.

        Raises:
            SourceConflict: a file is missing, or was edited since it was patched.
            AccessError: a file could not be read.
        """
        return self._originals.texts(paths)

    def commit(
        self, files: Mapping[str, bytes], *, patches: Sequence[str], tool_version: str
    ) -> tuple[str, ...]:
        """Bring the tree to its original texts with `files` over them.

        Files are replaced in the order given; before them, last one first, those that
        were patched and are not in `files` go back to what they were. Returns the paths
        that changed.

        Raises:
            SourceConflict: a file is missing, or somebody else changed it.
            AccessError: something could not be read or written; all is as before.
        """
        record = self.snapshot.record
        old = dict(record.files) if record else {}
        leaving = [path for path in reversed(old) if path not in files]
        changes, entries = [], {}
        with typed_errors(self._install.package, _UNCHANGED):
            for path in [*leaving, *files]:
                original, text = self._originals.file(path)
                before = self._originals.present(path) or original
                caches = self._put_caches(path)
                ours = self.snapshot.files.get(path) is FileState.PATCHED
                first_caches = old[path].caches if ours else caches
                new = files.get(path, text)
                if new == text:
                    after = self._restored(path, original) if ours else before
                    change = Change(path, before, after, caches, first_caches)
                else:
                    after = self._new_node(path, before, new)
                    change = Change(path, before, after, caches, {})
                    entries[path] = FileRecord(original, after.sha256, first_caches)
                if not same(before, after):
                    changes.append(change)
                    self._put(path, text, new)
            state = Record(tool_version, self._install.version, tuple(patches), entries)
            return self._carry_out(
                f"apply of {', '.join(patches)}", changes, state if entries else None
            )

    def revert(self, *, force: bool = False) -> tuple[str, ...]:
        """Give every patched file back as it was. Returns the paths that changed.

        A file that came with another version of SGLang since is left as it is. `force`
        also gives back files that somebody else changed, and drops that change.

        Raises:
            SourceConflict: somebody else changed a file, and no `force`.
            AccessError: something could not be read or written; all is as before.
        """
        record = self.snapshot.record
        if record is None:
            return ()
        newer = record.sglang_version != self._install.version
        theirs = [
            path
            for path in self.snapshot.changed
            if not (newer and self.snapshot.files[path] is FileState.REPLACED)
        ]
        if theirs and not force:
            raise SourceConflict(
                f"Changed since agentcore-patch patched them: {', '.join(theirs)} in "
                f"{self._install.package}. {_UNCHANGED} With --force the texts from "
                "before the patches are put back and these changes lost."
            )
        changes = []
        with typed_errors(self._install.package, _UNCHANGED):
            for path, entry in reversed(list(record.files.items())):
                if path in theirs or self.snapshot.files[path] is FileState.PATCHED:
                    before = self._originals.present(path)
                    after = self._restored(path, entry.original)
                    caches = self._put_caches(path)
                    changes.append(Change(path, before, after, caches, entry.caches))
                    self._put(path)
            return self._carry_out("revert", changes, None)

    def _carry_out(
        self, action: str, changes: Sequence[Change], state: Record | None
    ) -> tuple[str, ...]:
        if changes or state != self.snapshot.record:
            journal = Journal(action, tuple(changes), clears=state is None)
            self._folder.carry_out(journal, state)
        return tuple(change.path for change in changes)

    def _put(self, path: str, *texts: bytes) -> None:
        """Store texts, and the one that stands at a path."""
        for text in (*texts, self._originals.present_text(path)):
            if text is not None:
                self._folder.put(text)

    def _put_caches(self, path: str) -> dict[str, Node]:
        caches = read_caches(self._install.package, path)
        for _, text in caches.values():
            self._folder.put(text)
        return {cache: node for cache, (node, _) in caches.items()}

    def _new_node(self, path: str, before: Node, text: bytes) -> Node:
        now = unused_time(self._install.package / path, time.time_ns())
        return replace(
            before, sha256=digest(text), size=len(text), mtime_ns=now, link=None
        )

    def _restored(self, path: str, original: Node) -> Node:
        """The original; as a regular file if its link leads to another text by now."""
        self._folder.load(original.sha256)
        if original.link is not None:
            place = (self._install.package / path).parent / original.link
            behind = read(place)
            if behind is None or behind[0].sha256 != original.sha256:
                return replace(original, link=None)
        return original


class _Originals:
    """What patches start from, and what stood there when it was asked for first."""

    def __init__(self, install: Install, snapshot: Snapshot) -> None:
        self._package = install.package
        self._snapshot = snapshot
        self._folder = Folder(install.package)
        self._seen: dict[str, tuple[Node, bytes] | None] = {}

    def texts(self, paths: Iterable[str]) -> dict[str, bytes]:
        with typed_errors(self._package, _UNCHANGED):
            return {path: self.file(path)[1] for path in paths}

    def present(self, path: str) -> Node | None:
        seen = self._look(path)
        return seen and seen[0]

    def present_text(self, path: str) -> bytes | None:
        seen = self._look(path)
        return seen and seen[1]

    def file(self, path: str) -> tuple[Node, bytes]:
        """The saved file if ours is in place, else the present one."""
        seen = self._look(path)
        state = self._snapshot.files.get(path)
        if seen is None:
            raise SourceConflict(
                f"{self._package / path} is missing. {_UNCHANGED} Reinstall SGLang, or "
                "put the file back."
            )
        if state is FileState.EDITED:
            raise SourceConflict(
                f"{self._package / path} was changed since agentcore-patch patched it, "
                f"and cannot be patched again with that change. {_UNCHANGED} "
                "`agentcore-patch revert --force` puts back the text from before the "
                "patches and drops the change: make it again there, then apply."
            )
        if state is FileState.PATCHED and self._snapshot.record is not None:
            node = self._snapshot.record.files[path].original
            return node, self._folder.load(node.sha256)
        return seen

    def _look(self, path: str) -> tuple[Node, bytes] | None:
        if path not in self._seen:
            self._seen[path] = read(self._package / path)
        return self._seen[path]


def _look(install: Install, folder: Folder) -> Snapshot:
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


def _state(install: Install, folder: Folder, path: str, entry: FileRecord) -> FileState:
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
        patched = _lines(folder.load(entry.patched))
        ours = patched - _lines(folder.load(entry.original.sha256))
    except (OSError, AccessError):
        return FileState.EDITED
    return FileState.EDITED if ours & _lines(text) else FileState.REPLACED


def _lines(text: bytes) -> set[bytes]:
    return {line.strip() for line in text.splitlines()}
