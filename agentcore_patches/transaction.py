"""The only writer: takes an install from one set of texts to another, all or nothing.

Everything of ours lies in one folder inside the package, which `revert` removes:

    .agentcore-patch/
        lock            held (flock) by the command that is at work
        state.json      which patches are in place, and what each file was before them
        store/<sha256>  the texts that state.json and the journal speak of
        begun.json      journal of a change that is undone if its command dies
        decided.json    the same journal, of a change that is finished in that case
        state.next      the state.json that comes with the change

A change is prepared in full: texts stored, the journal written, each new file beside its
target, all synced. Renaming `begun.json` to `decided.json` decides it; only then are
targets replaced, one rename each. Whoever finds a journal drives every file to where the
journal's name says, which may be done any number of times.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from hashlib import sha256
from pathlib import Path
from typing import Any

from .errors import AccessError, AgentcoreError, SourceConflict
from .install import Install

FOLDER = ".agentcore-patch"
_FORMAT = 1
_POLL_SECONDS = 0.03
_SECOND_NS = 1_000_000_000
# Extended attributes that belong to the file and not to its text.
_XATTRS = ("system.posix_acl_access", "user.")


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
class Node:
    """A file as it stands: all that is needed to make it again, but for its text.

    `link` is what a symbolic link points to; `sha256`, `size` and `mode` are then
    those of the file behind it. Values of `xattrs` are in hex.
    """

    sha256: str
    size: int
    mode: int
    uid: int
    gid: int
    mtime_ns: int
    link: str | None = None
    xattrs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class FileRecord:
    """A patched file: what it was, our text, and the bytecode files it had."""

    original: Node
    patched: str
    caches: Mapping[str, Node]


@dataclass(frozen=True)
class Record:
    """What is in place: by which version of this package, which patches, which files."""

    tool_version: str
    sglang_version: str
    patches: tuple[str, ...]
    files: Mapping[str, FileRecord]


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
        return self.record is not None and all(s in gone for s in self.files.values())

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
    with _typed_errors(install.package):
        folder = _Folder(install.package)
        for _ in range(20):
            marks = folder.marks()
            snapshot = _snapshot(install, folder)
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
    with _typed_errors(install.package):
        folder = _Folder(install.package)
        texts = {}
        for path in paths:
            current = _read(install.package, path)
            texts[path] = _original(install, folder, snapshot, path, current)[1]
        return texts


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
    on_wait: Callable[[str], None] | None = None,
) -> Iterator[Transaction]:
    """The install for this process alone, with what a killed command left put right.

    Waits up to `timeout` seconds for another command; `on_wait` is told once for whom.

    Raises:
        AccessError: no permission, a read-only or full disk, or the wait was too long.
    """
    folder = _Folder(install.package)
    with _typed_errors(install.package, "Nothing was changed."):
        lock = folder.acquire(timeout, on_wait or (lambda line: None))
    try:
        with _typed_errors(
            install.package, "What an interrupted command left is still there."
        ):
            recovered = folder.recover()
        snapshot = replace(inspect(install), pending=None)
        yield Transaction(install, folder, snapshot, recovered)
    except BaseException:
        with suppress(OSError):
            folder.release(lock)
        raise
    with _typed_errors(
        install.package, "SGLang's files are done; only the folder itself is left over."
    ):
        folder.release(lock)


class Transaction:
    """An install under the lock; `recovered` tells in one line what was put right."""

    def __init__(
        self,
        install: Install,
        folder: _Folder,
        snapshot: Snapshot,
        recovered: str | None,
    ) -> None:
        self.recovered = recovered
        self.snapshot = snapshot
        self._install = install
        self._folder = folder
        self._seen: dict[str, _File | None] = {}

    def sources(self, paths: Iterable[str]) -> dict[str, bytes]:
        """The texts that patches start from, by path below the package.

        Raises:
            SourceConflict: a file is missing, or was edited since it was patched.
            AccessError: a file could not be read.
        """
        with _typed_errors(self._install.package, "Nothing was changed."):
            return {path: self._original(path)[1] for path in paths}

    def commit(
        self, files: Mapping[str, bytes], *, patches: Sequence[str], tool_version: str
    ) -> tuple[str, ...]:
        """Bring the tree to its original texts with `files` over them.

        Files are replaced in the order given; before them, last one first, those that
        were patched and are no longer in `files` go back to what they were. Returns
        the paths that changed.

        Raises:
            SourceConflict: a file is missing or somebody else changed it.
            AccessError: something could not be read or written; all is as before.
        """
        with _typed_errors(self._install.package, "Nothing was changed."):
            record = self.snapshot.record
            old = dict(record.files) if record else {}
            changes, entries = [], {}
            for path in [
                *(path for path in reversed(old) if path not in files),
                *files,
            ]:
                original, text = self._original(path)
                before = self._current(path) or original
                caches = self._caches(path)
                ours = self.snapshot.files.get(path) is FileState.PATCHED
                first_caches = old[path].caches if ours else caches
                if files.get(path, text) == text:
                    after = self._restored(path, original) if ours else before
                    change = _Change(path, before, after, caches, first_caches)
                else:
                    self._folder.hold(files[path])
                    after = self._new_node(path, before, files[path])
                    change = _Change(path, before, after, caches, {})
                    entries[path] = FileRecord(original, after.sha256, first_caches)
                if not _same(before, after):
                    changes.append(change)
            state = Record(tool_version, self._install.version, tuple(patches), entries)
            return self._carry_out(
                f"apply of {', '.join(patches)}", changes, state if entries else None
            )

    def revert(self, *, force: bool = False) -> tuple[str, ...]:
        """Give every patched file back as it was. Returns the paths that changed.

        A file that was replaced by a reinstall is left as it is. `force` also gives
        back files that somebody else changed, and drops that change.

        Raises:
            SourceConflict: somebody else changed a file, and no `force`.
            AccessError: something could not be read or written; all is as before.
        """
        record = self.snapshot.record
        if record is None:
            return ()
        with _typed_errors(self._install.package, "Nothing was changed."):
            newer = record.sglang_version != self._install.version
            theirs = [
                path
                for path in self.snapshot.changed
                if not (newer and self.snapshot.files[path] is FileState.REPLACED)
            ]
            if theirs and not force:
                raise SourceConflict(
                    f"Changed since agentcore-patch patched them: {_list(theirs)} in "
                    f"{self._install.package}. Nothing was changed. With --force the "
                    "texts from before the patches are put back and these changes lost."
                )
            changes = []
            for path in reversed(list(record.files)):
                entry = record.files[path]
                if path in theirs or self.snapshot.files[path] is FileState.PATCHED:
                    before = self._current(path)
                    after = self._restored(path, entry.original)
                    changes.append(
                        _Change(path, before, after, self._caches(path), entry.caches)
                    )
            return self._carry_out("revert", changes, None)

    def _carry_out(
        self, action: str, changes: Sequence[_Change], state: Record | None
    ) -> tuple[str, ...]:
        if changes or state != self.snapshot.record:
            journal = _Journal(action, tuple(changes), clears=state is None)
            self._folder.carry_out(journal, state)
            self.snapshot = replace(inspect(self._install), pending=None)
            self._seen.clear()
        return tuple(change.path for change in changes)

    def _current(self, path: str) -> Node | None:
        """The file as it was when this transaction first read it; its text is held."""
        if path not in self._seen:
            self._seen[path] = _read(self._install.package, path)
        seen = self._seen[path]
        if seen is None:
            return None
        self._folder.hold(seen[1])
        return seen[0]

    def _original(self, path: str) -> _File:
        self._current(path)
        node, text = _original(
            self._install, self._folder, self.snapshot, path, self._seen[path]
        )
        self._folder.hold(text)
        return node, text

    def _caches(self, path: str) -> dict[str, Node]:
        """Bytecode files of a source, by path below the package; their text is held."""
        found = {}
        for cache in _caches_of(self._install.package, path):
            with suppress(OSError):
                file = _read(self._install.package, cache)
                if file is not None:
                    self._folder.hold(file[1], lasting=False)
                    found[cache] = file[0]
        return found

    def _new_node(self, path: str, before: Node, text: bytes) -> Node:
        """A regular file for a new text, with a time no bytecode file goes by."""
        package = self._install.package
        stamps = {_stamp(package / cache) for cache in _caches_of(package, path)}
        stamps.add(int((package / path).stat().st_mtime))
        now = time.time_ns()
        while now // _SECOND_NS in stamps:
            now += _SECOND_NS
        return replace(
            before, sha256=_digest(text), size=len(text), mtime_ns=now, link=None
        )

    def _restored(self, path: str, original: Node) -> Node:
        """The original; as a regular file if its link leads to another text by now."""
        self._folder.load(original.sha256)
        if original.link is None:
            return original
        with suppress(OSError):
            behind = (self._install.package / path).parent / original.link
            if _digest(behind.read_bytes()) == original.sha256:
                return original
        return replace(original, link=None)


_File = tuple[Node, bytes]


@dataclass(frozen=True)
class _Change:
    """One source and its bytecode files, before and after; None: no such file."""

    path: str
    before: Node | None
    after: Node | None
    caches_before: Mapping[str, Node]
    caches_after: Mapping[str, Node]

    def backwards(self) -> _Change:
        return _Change(
            self.path, self.after, self.before, self.caches_after, self.caches_before
        )


@dataclass(frozen=True)
class _Journal:
    """What a command is about to do; `clears`: no record is left after it."""

    action: str
    changes: tuple[_Change, ...]
    clears: bool


class _Folder:
    """Our folder in a package, and the moves that keep it and the sources in step."""

    def __init__(self, package: Path) -> None:
        self.package = package
        self.path = package / FOLDER
        self.lock = self.path / "lock"
        self.state = self.path / "state.json"
        self.next_state = self.path / "state.next"
        self.begun = self.path / "begun.json"
        self.decided = self.path / "decided.json"
        self.store = self.path / "store"
        self._held: dict[str, tuple[bytes, bool]] = {}

    # -- reading

    def marks(self) -> list[tuple[int, int] | None]:
        """Tells whether another command moved something between two looks."""
        found: list[tuple[int, int] | None] = []
        for file in (self.state, self.begun, self.decided):
            try:
                status = file.stat()
                found.append((status.st_ino, status.st_mtime_ns))
            except FileNotFoundError:
                found.append(None)
        return found

    def record(self) -> Record | None:
        """What state.json says."""
        told = self._load_json(self.state)
        if told is None:
            return None
        with self._understood(self.state):
            return Record(
                tool_version=told["tool_version"],
                sglang_version=told["sglang_version"],
                patches=tuple(told["patches"]),
                files={
                    _inside(path): FileRecord(
                        Node(**entry["original"]),
                        entry["patched"],
                        _nodes(entry["caches"]),
                    )
                    for path, entry in told["files"].items()
                },
            )

    def journal(self) -> _Journal | None:
        """The journal that a command left, decided or not."""
        file = self.decided if self.decided.exists() else self.begun
        told = self._load_json(file)
        if told is None:
            return None
        with self._understood(file):
            return _Journal(
                action=told["action"],
                changes=tuple(
                    _Change(
                        _inside(change["path"]),
                        change["before"] and Node(**change["before"]),
                        change["after"] and Node(**change["after"]),
                        _nodes(change["caches_before"]),
                        _nodes(change["caches_after"]),
                    )
                    for change in told["changes"]
                ),
                clears=told["clears"],
            )

    def load(self, digest: str) -> bytes:
        """A stored text.

        Raises:
            AccessError: it is not what was stored.
        """
        file = self.store / digest
        text = file.read_bytes()
        if _digest(text) != digest:
            raise AccessError(
                f"{file} is damaged: it is not the text that was saved. Nothing was "
                "changed. Reinstalling SGLang gives its files back."
            )
        return text

    def _load_json(self, file: Path) -> dict[str, Any] | None:
        try:
            raw = file.read_bytes()
        except FileNotFoundError:
            return None
        with self._understood(file):
            told: dict[str, Any] = json.loads(raw)
            if told["format"] != _FORMAT:
                raise ValueError
            return told

    @contextmanager
    def _understood(self, file: Path) -> Iterator[None]:
        try:
            yield
        except (ValueError, KeyError, TypeError, AttributeError):
            raise AccessError(
                f"{file} cannot be understood: it is damaged, or written by another "
                "version of agentcore-patch; use that one. Nothing was changed. As a "
                f"last resort remove {self.path} and reinstall SGLang."
            ) from None

    # -- the lock

    def acquire(self, timeout: float, on_wait: Callable[[str], None]) -> int:
        """The lock's descriptor.

        flock on a file in our folder: freed by the kernel with its process, and seen by
        other machines where the file system is shared. Revert removes the file, so a
        lock counts only if its file still has its name.
        """
        deadline = time.monotonic() + timeout
        told = False
        while True:
            descriptor = self._open_lock()
            try:
                with _naming(self.lock):
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self._is_lock(descriptor):
                    break
                os.close(descriptor)
                continue
            except BlockingIOError:
                holder = os.read(descriptor, 100).decode(errors="replace")
                os.close(descriptor)
            except BaseException:
                os.close(descriptor)
                raise
            who = f"another agentcore-patch ({holder or 'just started'})"
            if time.monotonic() >= deadline:
                raise AccessError(
                    f"{who} is at work on {self.package}, and {timeout:g} s of waiting "
                    "were not enough. Nothing was changed. Try again, or wait longer "
                    "with --lock-timeout."
                )
            if not told:
                told = True
                on_wait(f"waiting for {who}, which is at work on {self.package}")
            time.sleep(_POLL_SECONDS)
        try:
            with _naming(self.lock):
                os.ftruncate(descriptor, 0)
                os.write(descriptor, f"process {os.getpid()}".encode())
        except BaseException:
            with suppress(OSError):
                self.release(descriptor)
            raise
        return descriptor

    def _open_lock(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        while True:
            try:
                with suppress(FileExistsError):
                    self.path.mkdir()
                    self._own(self.path, stat.S_IMODE(self.package.stat().st_mode))
                return os.open(self.lock, flags, 0o644)
            except FileNotFoundError:  # revert removed the folder just now
                if not self.package.is_dir():
                    raise
            except BaseException:
                with suppress(OSError):
                    self.path.rmdir()
                raise

    def _is_lock(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), self.lock.lstat())
        except FileNotFoundError:
            return False

    def release(self, descriptor: int) -> None:
        """Give the lock back; without record or journal the whole folder goes."""
        try:
            if any(file.exists() for file in (self.state, self.begun, self.decided)):
                return
            _remove_below(self.path, but=self.lock)
            self.lock.unlink(missing_ok=True)
        finally:
            os.close(descriptor)
        try:
            self.path.rmdir()
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:  # the next command is in already
                raise

    # -- writing

    def hold(self, text: bytes, *, lasting: bool = True) -> None:
        """Have a text stored by the next `carry_out`; `lasting`: synced."""
        digest = _digest(text)
        lasting = lasting or self._held.get(digest, (b"", False))[1]
        self._held[digest] = (text, lasting)

    def carry_out(self, journal: _Journal, state: Record | None) -> None:
        """Do what a journal says, or leave all as it was and raise."""
        try:
            self._prepare(journal, state)
            self.begun.replace(self.decided)
            _sync(self.path)
            self._drive(journal.changes, prepared=True, tidy=journal.clears)
            self._take_over(journal)
        except BaseException as error:
            try:
                self._undo(journal)
            except (OSError, AgentcoreError) as second:
                raise AccessError(
                    f"{_explain(error, self.package)} Putting the files back failed as "
                    f"well: {_explain(second, self.package)} The next agentcore-patch "
                    "command tries again."
                ) from error
            raise
        # Done. What is left of the journal is the next command's to remove.
        with suppress(OSError):
            self._forget_journal()

    def recover(self) -> str | None:
        """Finish or undo what a killed command left; says so in one line."""
        journal = self.journal()
        if journal is None:
            leftovers = [file for file in self._unused() if file != self.lock]
            for file in leftovers:
                _remove(file)
            if leftovers and self.record() is None:
                return "removed what an interrupted command left"
            return None
        finish = self.decided.exists()
        over = self.state if journal.clears else self.next_state
        if finish and over.exists():
            finish = not self._foreign(journal.changes)
            if not finish:
                self.decided.replace(self.begun)
                _sync(self.path)
        if finish:
            if over.exists():
                self._drive(journal.changes, tidy=journal.clears)
                self._take_over(journal)
            self._forget_journal()
            return f"finished an interrupted {journal.action}"
        left = self._undo(journal)
        line = f"undid an interrupted {journal.action}"
        if left:
            line += f"; left as somebody else made them: {_list(left)}"
        return line

    def _prepare(self, journal: _Journal, state: Record | None) -> None:
        ignore = self.path / ".gitignore"
        if not ignore.exists():
            self._write(ignore, b"*\n")
        with suppress(FileExistsError):
            self.store.mkdir()
            self._own(self.store, stat.S_IMODE(self.path.stat().st_mode))
        for digest, (text, lasting) in self._held.items():
            if not (self.store / digest).exists():
                self._write(self.store / digest, text, lasting=lasting)
        _sync(self.store)
        if state is not None:
            self._write(self.next_state, _json(state))
        self._write(self.begun, _json(journal))
        _sync(self.path)
        _sync(self.package)
        for change in journal.changes:
            _place(self.package, change.path)
            if change.after is not None:
                self._write_beside(change.path, change.after)

    def _undo(self, journal: _Journal) -> list[str]:
        """Drive back; returns the files that somebody else changed meanwhile."""
        if self.decided.exists():
            self.decided.replace(self.begun)
            _sync(self.path)
        changes = tuple(change.backwards() for change in reversed(journal.changes))
        left = []
        if self.begun.exists():
            left = self._foreign(changes)
            self._drive([change for change in changes if change.path not in left])
        for change in changes:
            _beside(self.package / change.path).unlink(missing_ok=True)
        self._forget_journal()
        return left

    def _drive(
        self, changes: Sequence[_Change], *, prepared: bool = False, tidy: bool = False
    ) -> None:
        """Bring every source to its `after`, with no bytecode of another text.

        `prepared`: the new files lie beside their targets. `tidy`: remove folders of
        bytecode that came with the patches.
        """
        for change in changes:
            self._sweep_caches(change)
        for change in changes:
            target = _place(self.package, change.path)
            present = _read(self.package, change.path)
            node = present and present[0]
            if not _same(node, change.after):
                if not _same(node, change.before):
                    raise SourceConflict(
                        f"{target} was changed by somebody else while agentcore-patch "
                        "was at work. Nothing was changed. Try again."
                    )
                if change.after is None:
                    target.unlink()
                else:
                    if not prepared:
                        self._write_beside(change.path, change.after)
                    _beside(target).replace(target)
                _sync(target.parent)
            _beside(target).unlink(missing_ok=True)
        for change in changes:
            self._sweep_caches(change)
            self._restore_caches(change)
            if tidy and not change.caches_after:
                with suppress(OSError):
                    _cache_folder(self.package / change.path).rmdir()

    def _sweep_caches(self, change: _Change) -> None:
        """Remove bytecode of any text but the one to come."""
        for cache in _caches_of(self.package, change.path):
            file = self.package / cache
            kept = change.caches_after.get(cache)
            if kept is not None:
                present = _read(self.package, cache)
                if present is not None and _same(present[0], kept):
                    continue
            try:
                file.unlink(missing_ok=True)
            except OSError:
                if change.after is None or _could_run(file, change.after):
                    raise

    def _restore_caches(self, change: _Change) -> None:
        """Give bytecode files back where that can be done: they are only caches."""
        for cache, node in change.caches_after.items():
            file = self.package / cache
            with suppress(OSError, AccessError):
                if not file.exists():
                    file.parent.mkdir(exist_ok=True)
                    self._write_beside(cache, node)
                    _beside(file).replace(file)
            with suppress(OSError):
                _beside(file).unlink(missing_ok=True)

    def _foreign(self, changes: Sequence[_Change]) -> list[str]:
        """Files that are neither as before the change nor as after it."""
        found = []
        for change in changes:
            present = _read(self.package, change.path)
            node = present and present[0]
            if not (_same(node, change.before) or _same(node, change.after)):
                found.append(change.path)
        return found

    def _take_over(self, journal: _Journal) -> None:
        if journal.clears:
            self.state.unlink(missing_ok=True)
        else:
            self.next_state.replace(self.state)

    def _forget_journal(self) -> None:
        _sync(self.path)
        self.begun.unlink(missing_ok=True)
        self.decided.unlink(missing_ok=True)
        _sync(self.path)
        for file in self._unused():
            _remove(file)

    def _unused(self) -> list[Path]:
        """What lies in our folder and serves neither a record nor the lock."""
        if not self.path.exists():
            return []
        record = self.record()
        if record is None:
            return [file for file in self.path.iterdir() if file != self.lock]
        known = {self.lock, self.state, self.store, self.path / ".gitignore"}
        texts = set()
        for entry in record.files.values():
            texts |= {entry.original.sha256, entry.patched}
            texts |= {node.sha256 for node in entry.caches.values()}
        return [
            *(file for file in self.path.iterdir() if file not in known),
            *(file for file in self.store.iterdir() if file.name not in texts),
        ]

    def _write(self, file: Path, data: bytes, *, lasting: bool = True) -> None:
        """Write one of our own files, whole or not at all."""
        draft = file.with_name(f"{file.name}.tmp")
        draft.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with _naming(file), os.fdopen(os.open(draft, flags, 0o600), "wb") as stream:
            stream.write(data)
            stream.flush()
            if lasting:
                os.fsync(stream.fileno())
        self._own(draft, 0o644)
        draft.replace(file)

    def _own(self, file: Path, mode: int) -> None:
        """Make a file of ours readable, and, if root made it, the tree owner's."""
        file.chmod(mode)
        if os.geteuid() == 0:
            owner = self.package.stat()
            os.chown(file, owner.st_uid, owner.st_gid)

    def _write_beside(self, path: str, node: Node) -> None:
        """Make a file in full, under another name in the folder it belongs in."""
        draft = _beside(self.package / path)
        draft.unlink(missing_ok=True)
        with _naming(draft):
            if node.link is not None:
                draft.symlink_to(node.link)
                with suppress(PermissionError):
                    os.chown(draft, node.uid, node.gid, follow_symlinks=False)
                times = (node.mtime_ns, node.mtime_ns)
                os.utime(draft, ns=times, follow_symlinks=False)
                return
            text = self.load(node.sha256)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            with os.fdopen(os.open(draft, flags, 0o600), "wb") as stream:
                stream.write(text)
                stream.flush()
                _dress(stream.fileno(), node)
                os.fsync(stream.fileno())


def _snapshot(install: Install, folder: _Folder) -> Snapshot:
    journal = folder.journal()
    record = folder.record()
    pending = None
    if journal is not None:
        end = "to be finished" if folder.decided.exists() else "to be undone"
        pending = f"an interrupted {journal.action}, {end}"
    elif record is None and folder.path.exists():
        pending = "leftovers of an interrupted command"
    if record is None:
        return Snapshot(None, {}, pending)
    states = {
        path: _state(install, folder, path, entry)
        for path, entry in record.files.items()
    }
    return Snapshot(record, states, pending)


def _state(
    install: Install, folder: _Folder, path: str, entry: FileRecord
) -> FileState:
    try:
        text = (install.package / path).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return FileState.MISSING
    digest = _digest(text)
    if digest == entry.patched:
        return FileState.PATCHED
    if digest == entry.original.sha256:
        return FileState.ORIGINAL
    if digest == install.wheel_hashes([path]).get(path):
        return FileState.ORIGINAL
    try:
        ours = _lines(folder.load(entry.patched)) - _lines(
            folder.load(entry.original.sha256)
        )
    except (OSError, AccessError):
        return FileState.EDITED
    return FileState.EDITED if ours & _lines(text) else FileState.REPLACED


def _lines(text: bytes) -> set[bytes]:
    return {line.strip() for line in text.splitlines()}


def _original(
    install: Install,
    folder: _Folder,
    snapshot: Snapshot,
    path: str,
    current: _File | None,
) -> _File:
    """The file that patches start from: the saved one if ours is in place."""
    state = snapshot.files.get(path)
    if current is None:
        raise SourceConflict(
            f"{install.package / path} is missing. Nothing was changed. Reinstall "
            "SGLang, or put the file back."
        )
    if state is FileState.EDITED:
        raise SourceConflict(
            f"{install.package / path} was changed since agentcore-patch patched it, "
            "and cannot be patched again with that change. Nothing was changed. "
            "`agentcore-patch revert --force` puts back the text from before the "
            "patches and drops the change; make it again there, then apply."
        )
    if state is FileState.PATCHED and snapshot.record is not None:
        node = snapshot.record.files[path].original
        return node, folder.load(node.sha256)
    return current


def _read(package: Path, path: str) -> _File | None:
    """A file, or what a symbolic link leads to; None if there is none."""
    file = package / path
    try:
        status = file.lstat()
        link = str(file.readlink()) if stat.S_ISLNK(status.st_mode) else None
        behind = file.stat() if link is not None else status
        if not stat.S_ISREG(behind.st_mode):
            raise OSError(errno.EINVAL, "Not a regular file", str(file))
        text = file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return Node(
        sha256=_digest(text),
        size=len(text),
        mode=stat.S_IMODE(behind.st_mode),
        uid=status.st_uid,
        gid=status.st_gid,
        mtime_ns=status.st_mtime_ns,
        link=link,
        xattrs=_xattrs(file),
    ), text


def _xattrs(file: Path) -> dict[str, str]:
    with suppress(OSError):
        return {
            name: os.getxattr(file, name).hex()
            for name in os.listxattr(file)
            if name.startswith(_XATTRS)
        }
    return {}


def _dress(descriptor: int, node: Node) -> None:
    """Give a new file the owner, attributes, mode and time of a node."""
    status = os.fstat(descriptor)
    if (status.st_uid, status.st_gid) != (node.uid, node.gid):
        os.fchown(descriptor, node.uid, node.gid)
    for name, value in node.xattrs.items():
        os.setxattr(descriptor, name, bytes.fromhex(value))
    os.fchmod(descriptor, node.mode)
    os.utime(descriptor, ns=(node.mtime_ns, node.mtime_ns))


def _same(one: Node | None, other: Node | None) -> bool:
    """Whether both are the same text in the same kind of file, or both nothing."""
    if one is None or other is None:
        return one is other
    return (one.sha256, one.link) == (other.sha256, other.link)


def _place(package: Path, path: str) -> Path:
    """A target's full path, which no symbolic link may lead out of the package."""
    target = package / path
    for folder in target.relative_to(package).parents:
        if folder != Path() and (package / folder).is_symlink():
            raise AccessError(
                f"{package / folder} is a symbolic link: what is behind it belongs to "
                f"another tree. Nothing was changed. Patch that one with --sglang-dir."
            )
    return target


def _beside(target: Path) -> Path:
    return target.with_name(f".{target.name}{FOLDER}")


def _inside(path: str) -> str:
    if path.startswith("/") or ".." in path.split("/"):
        raise ValueError(path)
    return path


def _cache_folder(source: Path) -> Path:
    return source.parent / "__pycache__"


def _caches_of(package: Path, path: str) -> list[str]:
    """Bytecode files of a source, of any interpreter, by path below the package."""
    folder = _cache_folder(Path(path))
    try:
        names = sorted(file.name for file in (package / folder).iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    stem = f"{Path(path).stem}."
    return [
        f"{folder}/{name}"
        for name in names
        if name.startswith(stem) and name.endswith(".pyc")
    ]


def _header(cache: Path) -> tuple[int, int, int]:
    """Flags, source time and source size of a bytecode file (PEP 552)."""
    with cache.open("rb") as stream:
        raw = stream.read(16)
    return tuple(int.from_bytes(raw[i : i + 4], "little") for i in (4, 8, 12))  # type: ignore[return-value]


def _stamp(cache: Path) -> int:
    with suppress(OSError):
        return _header(cache)[1]
    return -1


def _could_run(cache: Path, source: Node) -> bool:
    """Whether an interpreter would take a bytecode file for this source's."""
    flags, mtime, size = _header(cache)
    if flags & 0b01:
        return not flags & 0b10
    whole = 0xFFFFFFFF
    seconds = source.mtime_ns // _SECOND_NS
    return (mtime, size) == (seconds & whole, source.size & whole)


def _nodes(told: Mapping[str, Any]) -> dict[str, Node]:
    return {_inside(path): Node(**node) for path, node in told.items()}


def _json(value: Record | _Journal) -> bytes:
    return json.dumps({"format": _FORMAT, **asdict(value)}, indent=1).encode()


def _digest(text: bytes) -> str:
    return sha256(text).hexdigest()


def _sync(folder: Path) -> None:
    """Make names in a folder last, where the file system knows how."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with _naming(folder):
            os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def _remove_below(folder: Path, but: Path) -> None:
    for file in folder.iterdir():
        if file != but:
            _remove(file)


def _remove(file: Path) -> None:
    if file.is_dir() and not file.is_symlink():
        _remove_below(file, but=file)
        file.rmdir()
    else:
        file.unlink(missing_ok=True)


def _list(paths: Iterable[str]) -> str:
    return ", ".join(paths)


@contextmanager
def _naming(file: Path) -> Iterator[None]:
    """Give errors of calls on a descriptor the name of its file."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(file)
        raise


@contextmanager
def _typed_errors(package: Path, outcome: str = "") -> Iterator[None]:
    """Turn an OSError into an AccessError that says what to do."""
    try:
        yield
    except OSError as error:
        raise AccessError(f"{_explain(error, package)} {outcome}".strip()) from error


def _explain(error: BaseException, package: Path) -> str:
    if not isinstance(error, OSError):
        return f"{error}"
    advice = {
        errno.EACCES: f"Run the command as the user who owns {package}.",
        errno.EPERM: f"Run the command as the user who owns {package}.",
        errno.EROFS: "The file system is read-only; mount it for writing.",
        errno.ENOSPC: "Free some space.",
        errno.EDQUOT: "Free some space.",
        errno.EBUSY: "Something is mounted over it.",
        errno.EXDEV: "Something is mounted over it.",
        errno.ENOLCK: "The file system has no locks; install SGLang on another one.",
        errno.ENOSYS: "The file system has no locks; install SGLang on another one.",
    }.get(error.errno or 0, "")
    name = error.filename2 or error.filename or package
    return f"{os.fsdecode(name)}: {error.strerror}. {advice}".strip()
