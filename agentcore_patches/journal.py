"""Our folder in an install, and the moves that take many files at once to a new state.

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

import fcntl
import json
import os
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from errno import ENOTEMPTY
from pathlib import Path
from typing import Any, TypeVar

from .errors import AccessError, AgentcoreError, SourceConflict
from .files import (
    FOLDER,
    Node,
    beside,
    cache_folder,
    caches_of,
    could_run,
    digest,
    explain,
    give,
    naming,
    node_of,
    read,
    remove,
    require_inside,
    same,
    sync,
    write_beside,
    write_whole,
)

_FORMAT = 1
_T = TypeVar("_T")
_POLL_SECONDS = 0.03


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
class Change:
    """A source and its bytecode files before and after; None: no such file."""

    path: str
    before: Node | None
    after: Node | None
    caches_before: Mapping[str, Node]
    caches_after: Mapping[str, Node]

    def backwards(self) -> Change:
        """The change that undoes this one."""
        return Change(
            self.path, self.after, self.before, self.caches_after, self.caches_before
        )


@dataclass(frozen=True)
class Journal:
    """What a command is about to do; `clears`: no record is left after it."""

    action: str
    changes: tuple[Change, ...]
    clears: bool


class Folder:
    """Our folder in a package. What writes in it, or in the package, wants the lock."""

    def __init__(self, package: Path) -> None:
        self.package = package
        self.path = package / FOLDER
        self.lock = self.path / "lock"
        self.state = self.path / "state.json"
        self.next_state = self.path / "state.next"
        self.begun = self.path / "begun.json"
        self.decided = self.path / "decided.json"
        self.store = self.path / "store"
        self.gitignore = self.path / ".gitignore"

    # What is there

    def marks(self) -> list[tuple[int, int] | None]:
        """Other values than before mean that a command moved something in between."""
        found: list[tuple[int, int] | None] = []
        for file in (self.state, self.begun, self.decided):
            try:
                status = file.stat()
                found.append((status.st_ino, status.st_mtime_ns))
            except FileNotFoundError:
                found.append(None)
        return found

    def record(self) -> Record | None:
        """What is in place, as the last command left it."""
        return self._told(self.state, _record)

    def journal(self) -> Journal | None:
        """What a command that is at work, or was killed, is about to do."""
        decided = self._told(self.decided, _journal)
        return decided or self._told(self.begun, _journal)

    def load(self, name: str) -> bytes:
        """A stored text.

        Raises:
            AccessError: it is not what was stored.
        """
        file = self.store / name
        text = file.read_bytes()
        if digest(text) != name:
            raise AccessError(
                f"{file} is damaged: it is not the text that was saved. Nothing was "
                "changed. Reinstalling SGLang gives its files back."
            )
        return text

    def _told(self, file: Path, understand: Callable[[Any], _T]) -> _T | None:
        """What one of our JSON files says; None if it is not there."""
        try:
            told = json.loads(file.read_bytes())
            if told["format"] != _FORMAT:
                raise ValueError(told["format"])
            return understand(told)
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise AccessError(
                f"{file} cannot be understood: it is damaged, or another version of "
                "agentcore-patches wrote it, which then has to be used. Nothing was "
                f"changed. As a last resort remove {self.path} and reinstall SGLang."
            ) from None

    # The lock

    def acquire(self, timeout: float, on_wait: Callable[[str], None]) -> int:
        """Take the lock, waiting up to `timeout` seconds; returns its descriptor.

        It is an flock on a file of ours: the kernel frees it with its process, and a
        shared file system shows it to other machines. As the folder may be removed by
        its holder, a lock counts only while its file has its name.
        """
        if self.path.is_symlink():
            raise AccessError(
                f"{self.path} is a symbolic link, which agentcore-patch never makes. "
                "Nothing was changed. Remove it."
            )
        deadline = time.monotonic() + timeout
        told = False
        while True:
            descriptor = self._open_lock()
            try:
                with naming(self.lock):
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
                    f"{self.package} is locked: {who} is at work on it, and did not end "
                    f"within {timeout:g} s. Nothing was changed. Try again, or wait "
                    "longer with --lock-timeout."
                )
            if not told:
                told = True
                on_wait(f"waiting for {who} to finish with {self.package}")
            time.sleep(_POLL_SECONDS)
        try:
            with naming(self.lock):
                os.ftruncate(descriptor, 0)
                os.write(descriptor, f"process {os.getpid()}".encode())
                give(self.lock, mode=0o644, owner=self.package)
        except BaseException:
            with suppress(OSError):
                self.release(descriptor)
            raise
        return descriptor

    def release(self, descriptor: int) -> None:
        """Give the lock back. What serves no record is removed, the folder included."""
        try:
            if self.begun.exists() or self.decided.exists():
                return
            self._remove_unused()
            if self.state.exists():
                return
            self.lock.unlink(missing_ok=True)
        finally:
            os.close(descriptor)
        try:
            self.path.rmdir()
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno != ENOTEMPTY:  # the next command is in already
                raise

    def _open_lock(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        while True:
            try:
                self._make(self.path)
                return os.open(self.lock, flags, 0o644)
            except FileNotFoundError:  # its last holder just removed the folder
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

    # Changing things

    def put(self, text: bytes) -> None:
        """Store a text, to last as long as a journal or the record speaks of it."""
        file = self.store / digest(text)
        if not file.exists() or file.read_bytes() != text:
            self._make(self.store)
            self._write(file, text)

    def carry_out(self, journal: Journal, state: Record | None) -> None:
        """Do what a journal says, of which all texts are stored; or nothing, and raise."""
        try:
            self._prepare(journal, state)
            self.begun.replace(self.decided)
            sync(self.path)
            self._drive(journal.changes, prepared=True, tidy=journal.clears)
            self._take_over(journal)
        except BaseException as error:
            try:
                self._undo(journal)
            except (OSError, AgentcoreError) as second:
                raise AccessError(
                    f"{explain(error, self.package)} And the files could not all be "
                    f"put back: {explain(second, self.package)} The next "
                    "agentcore-patch command puts this right."
                ) from error
            raise
        try:
            self._forget_journal()
        except OSError as error:
            # With a record left, the next command removes the journal as well.
            if journal.clears:
                raise AccessError(
                    f"SGLang's files are as they were, but {self.path} could not be "
                    f"removed: {explain(error, self.package)} Run the command again."
                ) from error

    def recover(self) -> str | None:
        """Finish or undo what a killed command left; says so in one line."""
        journal = self.journal()
        if journal is None:
            self._remove_unused()
            return None
        finish = self.decided.exists()
        taken_over = not (self.state if journal.clears else self.next_state).exists()
        if finish and not taken_over and not self._foreign(journal.changes):
            self._drive(journal.changes, tidy=journal.clears)
            self._take_over(journal)
            taken_over = True
        if finish and taken_over:
            self._forget_journal()
            return f"finished an interrupted {journal.action}"
        left = self._undo(journal)
        return f"undid an interrupted {journal.action}" + (
            f"; left as somebody else changed them: {', '.join(left)}" if left else ""
        )

    def _prepare(self, journal: Journal, state: Record | None) -> None:
        self._make(self.store)
        sync(self.store)
        if not self.gitignore.exists():
            self._write(self.gitignore, b"*\n")
        if state is not None:
            self._write(self.next_state, _json(state))
        self._write(self.begun, _json(journal))
        sync(self.path)
        sync(self.package)
        for change in journal.changes:
            require_inside(self.package, change.path)
            self._write_beside(change.path, change.after)

    def _undo(self, journal: Journal) -> list[str]:
        """Drive back; returns the files that somebody else changed meanwhile."""
        if self.decided.exists():
            self.decided.replace(self.begun)
            sync(self.path)
        changes = [change.backwards() for change in reversed(journal.changes)]
        left = self._foreign(changes)
        if self.begun.exists():
            self._drive([change for change in changes if change.path not in left])
        for change in changes:
            beside(self.package / change.path).unlink(missing_ok=True)
        self._forget_journal()
        return left

    def _drive(
        self, changes: Sequence[Change], *, prepared: bool = False, tidy: bool = False
    ) -> None:
        """Bring every source to its `after`, with no bytecode of another text.

        `prepared`: the new files lie beside their targets. `tidy`: remove folders of
        bytecode that are empty then.
        """
        for change in changes:
            self._sweep_caches(change)
        for change in changes:
            target = self.package / change.path
            present = node_of(target)
            if not same(present, change.after):
                if not same(present, change.before):
                    raise SourceConflict(
                        f"{target} was changed by somebody else while agentcore-patch "
                        "was at work. Nothing was changed. Try again."
                    )
                if change.after is None:
                    target.unlink()
                else:
                    if not prepared:
                        self._write_beside(change.path, change.after)
                    beside(target).replace(target)
                sync(target.parent)
            beside(target).unlink(missing_ok=True)
        for change in changes:
            self._sweep_caches(change)
            self._restore_caches(change)
            if tidy and not change.caches_after:
                with suppress(OSError):
                    cache_folder(self.package / change.path).rmdir()

    def _sweep_caches(self, change: Change) -> None:
        """Remove bytecode of any text but the one to come."""
        for cache in caches_of(self.package / change.path):
            kept = change.caches_after.get(str(cache.relative_to(self.package)))
            if kept is not None and same(node_of(cache), kept):
                continue
            try:
                cache.unlink(missing_ok=True)
            except OSError as error:
                if change.after is None or could_run(cache, change.after):
                    raise AccessError(
                        f"{cache}: {error.strerror}. It cannot be removed, and Python "
                        "would go on running it in place of the new text. Nothing was "
                        f"changed. Make {cache.parent} writable."
                    ) from error

    def _restore_caches(self, change: Change) -> None:
        """Give bytecode files back, but for those whose saved text is damaged."""
        for cache, node in change.caches_after.items():
            file = self.package / cache
            if not file.exists():
                file.parent.mkdir(exist_ok=True)
                with suppress(AccessError, FileNotFoundError):
                    write_beside(file, node, self.load(node.sha256), must_own=False)
                    beside(file).replace(file)
            beside(file).unlink(missing_ok=True)

    def _foreign(self, changes: Sequence[Change]) -> list[str]:
        """Files that are neither as before the change nor as after it."""
        found = []
        for change in changes:
            present = node_of(self.package / change.path)
            if not (same(present, change.before) or same(present, change.after)):
                found.append(change.path)
        return found

    def _take_over(self, journal: Journal) -> None:
        if journal.clears:
            self.state.unlink(missing_ok=True)
        else:
            self.next_state.replace(self.state)

    def _forget_journal(self) -> None:
        sync(self.path)
        self.begun.unlink(missing_ok=True)
        self.decided.unlink(missing_ok=True)
        sync(self.path)
        self._remove_unused()

    def _remove_unused(self) -> None:
        """Remove what serves neither the record nor the lock."""
        record = self.record()
        known, texts = {self.lock}, set()
        if record is not None:
            known |= {self.state, self.store, self.gitignore}
            for entry in record.files.values():
                texts |= {entry.original.sha256, entry.patched}
                texts |= {node.sha256 for node in entry.caches.values()}
        for file in list(self.path.iterdir()):
            if file not in known:
                remove(file)
        if self.store.exists():
            for file in list(self.store.iterdir()):
                if file.name not in texts:
                    remove(file)

    def _write_beside(self, path: str, node: Node | None) -> None:
        if node is not None:
            text = b"" if node.link is not None else self.load(node.sha256)
            write_beside(self.package / path, node, text)

    def _write(self, file: Path, text: bytes) -> None:
        write_whole(file, text, mode=0o644, owner=self.package)

    def _make(self, folder: Path) -> None:
        with suppress(FileExistsError):
            folder.mkdir()
            mode = stat.S_IMODE(self.package.stat().st_mode)
            give(folder, mode=mode, owner=self.package)


def read_caches(package: Path, path: str) -> dict[str, tuple[Node, bytes]]:
    """The bytecode files of a source, by path below the package."""
    files = {cache: read(cache) for cache in caches_of(package / path)}
    return {
        str(cache.relative_to(package)): file for cache, file in files.items() if file
    }


def _record(told: Any) -> Record:
    return Record(
        tool_version=told["tool_version"],
        sglang_version=told["sglang_version"],
        patches=tuple(told["patches"]),
        files={
            _inside(path): FileRecord(
                Node(**entry["original"]), entry["patched"], _nodes(entry["caches"])
            )
            for path, entry in told["files"].items()
        },
    )


def _journal(told: Any) -> Journal:
    return Journal(
        action=told["action"],
        changes=tuple(
            Change(
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


def _inside(path: str) -> str:
    if path.startswith("/") or ".." in path.split("/"):
        raise ValueError(path)
    return path


def _nodes(told: Mapping[str, Any]) -> dict[str, Node]:
    return {_inside(path): Node(**node) for path, node in told.items()}


def _json(value: Record | Journal) -> bytes:
    return json.dumps({"format": _FORMAT, **asdict(value)}, indent=1).encode()
