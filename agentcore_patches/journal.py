"""Our folder in an install, and how many files are changed together, or none of them.

    .agentcore-patch/
        lock            held (flock) by the command that is at work
        state.json      which patches are in place, and what each file was before them
        store/<sha256>  the texts that state.json and the journal refer to
        begun.json      journal of a change that is undone if its command is killed
        decided.json    the same journal, of a change that is finished in that case
        state.next      the state.json that belongs to the change

A change is prepared in full first: texts stored, the journal written, each new file
written next to its target, all synced to disk. Renaming `begun.json` to `decided.json`
is the point of no return; only then are the targets replaced, one rename each. A command
that finds a journal finishes or undoes that change, and may itself be killed and repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from errno import ENOTEMPTY
from pathlib import Path
from typing import TypeVar

from agentcore_patches import lock
from agentcore_patches.bytecode import bytecode_files, bytecode_folder, could_run
from agentcore_patches.errors import AccessError, AgentcoreError, SourceConflict
from agentcore_patches.files import (
    FOLDER,
    digest,
    explain,
    file_info,
    make_folder,
    make_parents,
    remove,
    remove_empty_parents,
    remove_if_empty,
    require_inside,
    same_content,
    sync,
    temp_path,
    write_temp,
    write_whole,
)
from agentcore_patches.records import Change, Journal, Record

_T = TypeVar("_T")


class StateFolder:
    """Our folder in a package. The lock must be held to write in it or in the package."""

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

    # Reading

    def stamps(self) -> list[tuple[int, int] | None]:
        """Inode and time of record and journals: they differ once a command changed any."""
        found: list[tuple[int, int] | None] = []
        for file in (self.state, self.begun, self.decided):
            try:
                status = file.stat()
                found.append((status.st_ino, status.st_mtime_ns))
            except FileNotFoundError:
                found.append(None)
        return found

    def record(self) -> Record | None:
        """What is in place, as the last command left it; None if nothing is."""
        return self._parse(self.state, Record.from_json)

    def journal(self) -> Journal | None:
        """What a command that is at work, or was killed, is about to do."""
        decided = self._parse(self.decided, Journal.from_json)
        return decided or self._parse(self.begun, Journal.from_json)

    def load_text(self, name: str) -> bytes:
        """A stored text, by its SHA-256.

        Raises:
            AccessError: the file in the store is damaged.
        """
        file = self.store / name
        text = file.read_bytes()
        if digest(text) != name:
            raise AccessError(
                f"{file} is damaged: it is not the text that was saved. Nothing was "
                "changed. Reinstall SGLang to get its original files back."
            )
        return text

    def _parse(self, file: Path, from_json: Callable[[bytes], _T]) -> _T | None:
        try:
            return from_json(file.read_bytes())
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise AccessError(
                f"{file} cannot be read: it is damaged, or it was written by another "
                "version of agentcore-patches. Nothing was changed. Run that version, "
                f"or, as a last resort, remove {self.path} and reinstall SGLang."
            ) from None

    # The lock

    def acquire(self, timeout: float, on_wait: Callable[[str], None]) -> int:
        """Take the lock, waiting up to `timeout` seconds; returns its descriptor.

        Raises:
            AccessError: another command did not finish in time.
        """
        descriptor = lock.acquire(
            self.lock, self.package, timeout=timeout, on_wait=on_wait
        )
        try:
            lock.write_holder(descriptor, self.lock, self.package)
        except BaseException:
            with suppress(OSError):
                self.release(descriptor)
            raise
        return descriptor

    def release(self, descriptor: int) -> None:
        """Free the lock; without a record or a journal, remove the whole folder."""
        try:
            if self.begun.exists() or self.decided.exists():
                return
            self._remove_unused()
            if self.state.exists():
                return
            self.lock.unlink(missing_ok=True)
        finally:
            lock.close(descriptor)
        try:
            self.path.rmdir()
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno != ENOTEMPTY:  # the next command has made its files already
                raise

    # Changing things

    def store_text(self, text: bytes) -> None:
        """Keep a text for as long as the journal or the record refers to it."""
        file = self.store / digest(text)
        if not file.exists() or file.read_bytes() != text:
            make_folder(self.store, like=self.package)
            self._write(file, text)

    def carry_out(self, journal: Journal, state: Record | None) -> None:
        """Make all changes of a journal, whose texts are stored; or none, and raise."""
        try:
            self._prepare(journal, state)
            self.begun.replace(self.decided)
            sync(self.path)
            self._replace_files(
                journal.changes, prepared=True, remove_folders=journal.clears
            )
            self._switch_state(journal)
        except BaseException as error:
            try:
                self._undo(journal)
            except (OSError, AgentcoreError) as second:
                raise AccessError(
                    f"{explain(error, self.package)} After that, not all files could "
                    f"be put back: {explain(second, self.package)} The next "
                    "agentcore-patch command repairs this."
                ) from error
            raise
        try:
            self._remove_journal()
        except OSError as error:
            # With a record left, the next command removes the journal as well.
            if journal.clears:
                raise AccessError(
                    "SGLang's files are as they were before the patches, but "
                    f"{self.path} could not be removed: "
                    f"{explain(error, self.package)} Run the command again."
                ) from error

    def recover(self) -> str | None:
        """Finish or undo what a killed command left; returns what was done, in one line."""
        journal = self.journal()
        if journal is None:
            self._remove_unused()
            return None
        finish = self.decided.exists()
        switched = not (self.state if journal.clears else self.next_state).exists()
        if finish and not switched and not self._changed_by_others(journal.changes):
            self._replace_files(journal.changes, remove_folders=journal.clears)
            self._switch_state(journal)
            switched = True
        if finish and switched:
            self._remove_journal()
            return f"finished an interrupted {journal.action}"
        kept = self._undo(journal)
        return f"undid an interrupted {journal.action}" + (
            f"; not touched, because somebody else changed them: {', '.join(kept)}"
            if kept
            else ""
        )

    def _prepare(self, journal: Journal, state: Record | None) -> None:
        make_folder(self.store, like=self.package)
        sync(self.store)
        if not self.gitignore.exists():
            self._write(self.gitignore, b"*\n")
        if state is not None:
            self._write(self.next_state, state.to_json())
        self._write(self.begun, journal.to_json())
        sync(self.path)
        sync(self.package)
        for change in journal.changes:
            require_inside(self.package, change.path)
            self._write_temp(change)

    def _undo(self, journal: Journal) -> list[str]:
        """Put everything back, but for files that somebody else changed; returns those."""
        if self.decided.exists():
            self.decided.replace(self.begun)
            sync(self.path)
        changes = [change.reversed() for change in reversed(journal.changes)]
        kept = self._changed_by_others(changes)
        if self.begun.exists():
            self._replace_files(
                [change for change in changes if change.path not in kept]
            )
        for change in changes:
            temp_path(self.package / change.path).unlink(missing_ok=True)
            if change.after is None:
                remove_empty_parents(self.package, change.path)
        self._remove_journal()
        return kept

    def _replace_files(
        self,
        changes: Sequence[Change],
        *,
        prepared: bool = False,
        remove_folders: bool = False,
    ) -> None:
        """Bring every source to its `after`, with no bytecode of another text.

        `prepared`: the new files are there under their temporary names. With
        `remove_folders`, bytecode folders that are empty then are removed.
        """
        for change in changes:
            self._remove_stale_bytecode(change)
        for change in changes:
            target = self.package / change.path
            present = file_info(target)
            if not same_content(present, change.after):
                if not same_content(present, change.before):
                    raise SourceConflict(
                        f"{target} was changed by somebody else while agentcore-patch "
                        "was at work. Nothing was changed. Try again."
                    )
                if change.after is None:
                    target.unlink()
                else:
                    if not prepared:
                        self._write_temp(change)
                    temp_path(target).replace(target)
                sync(target.parent)
            temp_path(target).unlink(missing_ok=True)
        for change in changes:
            self._remove_stale_bytecode(change)
            self._restore_bytecode(change)
            gone = change.after is None
            if (remove_folders or gone) and not change.caches_after:
                remove_if_empty(bytecode_folder(self.package / change.path))
            if gone:
                remove_empty_parents(self.package, change.path)

    def _remove_stale_bytecode(self, change: Change) -> None:
        """Remove bytecode of any text but `change.after`."""
        for file in bytecode_files(self.package / change.path):
            kept = change.caches_after.get(str(file.relative_to(self.package)))
            if kept is not None and same_content(file_info(file), kept):
                continue
            try:
                file.unlink(missing_ok=True)
            except OSError as error:
                if change.after is None or could_run(file, change.after):
                    raise AccessError(
                        f"{file} cannot be removed ({error.strerror}), and Python "
                        "would go on running it instead of the new source. Nothing was "
                        f"changed. Make {file.parent} writable."
                    ) from error

    def _restore_bytecode(self, change: Change) -> None:
        """Put saved bytecode files back, except those whose saved content is damaged."""
        for path, info in change.caches_after.items():
            file = self.package / path
            if not file.exists():
                file.parent.mkdir(exist_ok=True)
                with suppress(AccessError, FileNotFoundError):
                    text = self.load_text(info.sha256)
                    write_temp(file, info, text, must_own=False)
                    temp_path(file).replace(file)
            temp_path(file).unlink(missing_ok=True)

    def _changed_by_others(self, changes: Sequence[Change]) -> list[str]:
        """Files that are neither as before the change nor as after it."""
        found = []
        for change in changes:
            present = file_info(self.package / change.path)
            if not (
                same_content(present, change.before)
                or same_content(present, change.after)
            ):
                found.append(change.path)
        return found

    def _switch_state(self, journal: Journal) -> None:
        """Make the record that belongs to the change the current one."""
        if journal.clears:
            self.state.unlink(missing_ok=True)
        else:
            self.next_state.replace(self.state)

    def _remove_journal(self) -> None:
        sync(self.path)
        self.begun.unlink(missing_ok=True)
        self.decided.unlink(missing_ok=True)
        sync(self.path)
        self._remove_unused()

    def _remove_unused(self) -> None:
        """Remove what neither the record nor the lock needs."""
        record = self.record()
        known, texts = {self.lock}, set()
        if record is not None:
            known |= {self.state, self.store, self.gitignore}
            for entry in record.files.values():
                texts |= {entry.original.sha256} if entry.original else set()
                texts |= {entry.patched}
                texts |= {info.sha256 for info in entry.caches.values()}
        for file in list(self.path.iterdir()):
            if file not in known:
                remove(file)
        if self.store.exists():
            for file in list(self.store.iterdir()):
                if file.name not in texts:
                    remove(file)

    def _write_temp(self, change: Change) -> None:
        info = change.after
        if info is None:
            return
        text = b"" if info.link is not None else self.load_text(info.sha256)
        created = change.before is None
        if created:
            make_parents(self.package, change.path)
        write_temp(self.package / change.path, info, text, must_own=not created)

    def _write(self, file: Path, text: bytes) -> None:
        write_whole(file, text, mode=0o644, owner=self.package)
