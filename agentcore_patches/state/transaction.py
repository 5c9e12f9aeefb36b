"""The only writer: replaces files of an install, all of them or none."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from agentcore_patches.disk.filesystem import (
    FOLDER,
    FileInfo,
    digest,
    draft_path,
    explain,
    file_info,
    files_in,
    make_parents,
    neighbouring_metadata,
    read,
    remove_empty_parents,
    remove_if_empty,
    require_inside,
    same_content,
    sync,
    write_draft,
    write_whole,
)
from agentcore_patches.disk.privileges import access, rights_of_owner
from agentcore_patches.errors import (
    AccessError,
    AgentcoreError,
    SourceConflict,
    UsageError,
)
from agentcore_patches.installs.install import Install
from agentcore_patches.installs.metadata import list_added
from agentcore_patches.state.bytecode import Bytecode
from agentcore_patches.state.lock import Lock
from agentcore_patches.state.originals import Originals
from agentcore_patches.state.ownership import is_created
from agentcore_patches.state.records import (
    Change,
    FileRecord,
    Journal,
    JournalFile,
    Record,
    RecordFile,
)
from agentcore_patches.state.snapshot import (
    UNCHANGED,
    FileState,
    Snapshot,
    patched_files,
    require_own_folder,
)
from agentcore_patches.state.snapshot import (
    inspect as inspect,
)
from agentcore_patches.state.store import Store


def to_restore(
    install: Install, snapshot: Snapshot, *, force: bool
) -> dict[str, FileRecord]:
    """Return the files to restore or remove, in that order, or raise SourceConflict."""
    record = snapshot.record
    if record is None:
        return {}
    edited = snapshot.changed
    if change := snapshot.sglang_change:
        own = [path for path in edited if not is_created(path)]
        if own:
            raise SourceConflict(
                f"{', '.join(own)} in {install.package} contain patches and other "
                f"changes. {change} since they were patched, so the saved originals "
                f"belong to another release. {UNCHANGED}",
                hint="Restore these files by reinstalling SGLang, or with `git checkout`; then "
                "run the command again.",
            )
    if edited and not force:
        raise SourceConflict(
            f"Patched files were edited or removed since: {', '.join(edited)} in "
            f"{install.package}. {UNCHANGED}",
            hint="Undo these changes, or restore the original files with "
            "`agentcore-patch revert --force`, which loses them.",
        )
    return {
        path: file
        for path, file in reversed(list(record.files.items()))
        if path in edited or snapshot.files[path] is FileState.PATCHED
    }


@contextmanager
def locked(
    install: Install,
    *,
    timeout: float = 60.0,
    notify: Callable[[str], None] | None = None,
) -> Iterator[Transaction]:
    """Lock an install, and finish or undo what a killed command left.

    Waits up to `timeout` seconds for another command. `notify` is called with a line
    that names the other process, and with one about what was finished or undone.

    Raises:
        UsageError: the timeout is not a number.
        AccessError: no permission, a read-only or full disk, or the wait was too long.
    """
    if math.isnan(timeout):
        raise UsageError("The time to wait for the lock is not a number of seconds.")
    notify = notify or (lambda line: None)
    package = install.package
    files = _Files(install)
    with access(package, UNCHANGED):
        require_own_folder(package)
        lock = files.lock.acquire(timeout, notify)
    try:
        with access(package, UNCHANGED):
            files.lock.sign(lock)
        with access(package, "The command was not started."):
            recovered = files.recover()
        transaction = Transaction(install, files, recovered)
        if recovered:
            notify(recovered)
        yield transaction
    except BaseException:
        with suppress(OSError, AgentcoreError), rights_of_owner(package):
            files.release(lock)
        raise
    with access(package, f"Only {files.folder} was left over."):
        files.release(lock)


class Transaction:
    """A locked install, for one `commit` or `revert`.

    Attributes:
        recovered: what was finished or undone of a killed command, in one line.
        snapshot: the state after that.
        originals: the original files, and the present ones.
    """

    def __init__(self, install: Install, files: _Files, recovered: str | None) -> None:
        self.recovered = recovered
        self.snapshot = replace(inspect(install), pending=None)
        self._install = install
        self._files = files
        self.originals = Originals(install, self.snapshot)

    def commit(
        self, files: Mapping[str, bytes], *, patches: Sequence[str], tool_version: str
    ) -> tuple[str, ...]:
        """Make `files` the only files that differ from the originals.

        Files that were patched and are not in `files` are restored first, last one
        first; then those in `files` are replaced or created, in the order given.
        Returns the paths that changed.

        Raises:
            SourceConflict: a file is missing, or another tool changed or created it.
            AccessError: something could not be read or written; nothing was changed.
        """
        record = self.snapshot.record
        old = record.files if record else {}
        originals = self.originals.for_commit(files)
        changes, entries = [], {}
        with access(self._install.package, UNCHANGED):
            for path, (original, text) in originals.items():
                before = self.originals.present(path)
                caches = self._store_bytecode(path)
                is_patched = self.snapshot.files.get(path) is FileState.PATCHED
                first_caches: Mapping[str, FileInfo] = caches if original else {}
                if is_patched:
                    first_caches = old[path].caches
                new = files.get(path, text)
                if new is None or new == text:
                    after = self._restored(path, original) if is_patched else before
                    change = Change(path, before, after, caches, first_caches)
                else:
                    bytecode = Bytecode(self._install.package, path)
                    mtime = bytecode.unused_mtime(time.time_ns())
                    after = FileInfo(digest(new), len(new), mtime)
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

        A file without patches, which came with another SGLang since, is left as it is.
        With `force`, edited and missing files are restored too, and the edits are lost;
        but not if SGLang itself has changed since: an original of one release is never
        written into another.

        Raises:
            SourceConflict: a file was changed since, and no `force`.
            AccessError: something could not be read or written; nothing was changed.
        """
        entries = to_restore(self._install, self.snapshot, force=force)
        changes = []
        with access(self._install.package, UNCHANGED):
            for path, entry in entries.items():
                before = self.originals.present(path)
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
            self._files.carry_out(journal, state)
        return tuple(change.path for change in changes)

    def _store(self, path: str, *texts: bytes | None) -> None:
        """Store these contents of a file, and the present one."""
        present = self.originals.seen(path)
        mode = present.metadata.mode if present else 0o644
        for text in (*texts, present.text if present else None):
            if text is not None:
                self._files.store.add(text, mode)

    def _store_bytecode(self, path: str) -> dict[str, FileInfo]:
        found = Bytecode(self._install.package, path).read()
        for file in found.values():
            self._files.store.add(file.text, file.metadata.mode)
        return {cache: file.info for cache, file in found.items()}

    def _restored(self, path: str, original: FileInfo | None) -> FileInfo | None:
        """Return the original, as a regular file if its link now points elsewhere."""
        if original is None:
            return None
        self._files.store.load(original.sha256)
        return _with_true_link(self._install.package / path, original)


class _Files:
    """Files of an install that are replaced together, or not at all.

    The lock must be held, and the rights taken on.
    """

    def __init__(self, install: Install) -> None:
        self.package = install.package
        self.folder = install.package / FOLDER
        self.store = Store(self.folder)
        self.lock = Lock(install.package, self.folder / "lock")
        self._record = RecordFile(self.folder)
        self._journal = JournalFile(self.folder)
        self._gitignore = self.folder / ".gitignore"
        self._install = install

    def carry_out(self, journal: Journal, state: Record | None) -> None:
        """Make all changes of a journal, or none and raise. Their files must be stored."""
        try:
            self._prepare(journal, state)
            self._journal.commit()
            sync(self.folder)
            self._replace(journal.changes, prepared=True, clears=journal.clears)
            self._record.switch(clears=journal.clears)
        except BaseException as error:
            try:
                if not self._is_done(journal):
                    self._undo(journal)
            except (OSError, AgentcoreError) as second:
                raise AccessError(
                    f"{explain(error, self.package)} After that, not all files could "
                    f"be put back: {explain(second, self.package)}",
                    hint="The next agentcore-patch command repairs this.",
                ) from error
            raise
        try:
            self._end()
        except OSError as error:
            # With a record left, the next command removes the journal as well.
            if journal.clears:
                raise AccessError(
                    "SGLang's files are as they were before the patches, but "
                    f"{self.folder} could not be removed: "
                    f"{explain(error, self.package)}",
                    hint="Run the command again.",
                ) from error

    def recover(self) -> str | None:
        """Finish or undo the change of a killed command; return a line about it."""
        journal = self._journal.read()
        if journal is None:
            return None
        for change in journal.changes:
            require_inside(self.package, change.path)
        finish = (
            self._journal.committed.exists()
            and not self._is_done(journal)
            and self._record.can_switch(clears=journal.clears)
        )
        if finish and not self._changed_by_others(journal.changes):
            self._replace(journal.changes, clears=journal.clears)
            self._record.switch(clears=journal.clears)
        if self._is_done(journal):
            self._end()
            return f"finished an interrupted {journal.action}"
        kept = self._undo(journal)
        return f"undid an interrupted {journal.action}" + (
            f"; not touched, because another process changed them: {', '.join(kept)}"
            if kept
            else ""
        )

    def release(self, lock: int) -> None:
        """Free the lock; remove the state folder if nothing else is left in it."""
        try:
            if self._journal.exists:
                return
            self._remove_leftovers()
            self._list_added(self._record.read())
            if self._record.file.exists():
                return
            self.lock.file.unlink(missing_ok=True)
        finally:
            os.close(lock)
        # The next command may have made its files already.
        remove_if_empty(self.folder)

    def _list_added(self, record: Record | None) -> None:
        """Name the added files in the RECORD of pip and uv, if it can be written."""
        install = self._install
        if install.dist_info is None or install.editable:
            return
        added: list[str] = []
        if record is not None:
            own = (
                self.lock.file,
                self._gitignore,
                self._record.file,
                self._record.next,
            )
            stored = (self.store.folder / name for name in sorted(record.texts))
            files = (*own, *self._journal.files, *stored)
            added += filter(is_created, record.files)
            added += (str(file.relative_to(self.package)) for file in files)
        with suppress(OSError):
            list_added(install.dist_info, self.package.name, added)

    def _is_done(self, journal: Journal) -> bool:
        """True if the whole change is made, and only its journal is left."""
        committed = self._journal.committed.exists()
        return committed and self._record.is_switched(clears=journal.clears)

    def _prepare(self, journal: Journal, state: Record | None) -> None:
        for change in journal.changes:
            require_inside(self.package, change.path)
        self.store.make()
        if not self._gitignore.exists():
            write_whole(self._gitignore, b"*\n")
        if state is not None:
            self._record.prepare(state)
            self._list_added(state)
        self._journal.write(journal)
        sync(self.folder)
        sync(self.package)
        for change in journal.changes:
            self._write_draft(change)

    def _undo(self, journal: Journal) -> list[str]:
        """Put everything back, except files that were changed since; return these paths.

        A file of SGLang that was missing before is not removed again.
        """
        self._journal.withdraw()
        changes = [change.reversed() for change in reversed(journal.changes)]
        kept = self._changed_by_others(changes)
        for change in changes:
            for path in (change.path, *change.caches_before):
                draft_path(self.package / path).unlink(missing_ok=True)
        if self._journal.prepared.exists():
            sync(self.folder)
            self._replace(
                [
                    change
                    for change in changes
                    if change.path not in kept
                    and (change.after is not None or is_created(change.path))
                ]
            )
        self._end()
        return kept

    def _replace(
        self,
        changes: Sequence[Change],
        *,
        prepared: bool = False,
        clears: bool = False,
    ) -> None:
        """Bring every source to its `after`, and remove bytecode of other sources.

        `prepared`: the new files exist under their temporary names. `clears`: remove
        bytecode folders that are then empty.
        """
        caches = {
            change.path: Bytecode(self.package, change.path) for change in changes
        }
        for change in changes:
            caches[change.path].remove_stale(change.after, change.caches_after)
        for folder, group in groupby(
            changes, lambda change: (self.package / change.path).parent
        ):
            for change in group:
                self._replace_one(change, prepared=prepared)
            # What a killed command replaced may not be on the disk yet.
            if folder.is_dir():
                sync(folder)
        for change in changes:
            bytecode = caches[change.path]
            bytecode.remove_stale(change.after, change.caches_after)
            bytecode.restore(change.caches_after, self.store.load)
            gone = change.after is None
            if (clears or gone) and not change.caches_after:
                remove_if_empty(bytecode.folder)
            if gone:
                remove_empty_parents(self.package, change.path)

    def _replace_one(self, change: Change, *, prepared: bool) -> None:
        target = self.package / change.path
        present = file_info(target)
        if not same_content(present, change.after):
            if not same_content(present, change.before):
                raise SourceConflict(
                    f"{target} was changed by another process while agentcore-patch "
                    "was running. Nothing was changed.",
                    hint="Try again.",
                )
            if change.after is None:
                target.unlink()
            else:
                if not prepared:
                    self._write_draft(change)
                draft_path(target).replace(target)
        draft_path(target).unlink(missing_ok=True)

    def _changed_by_others(self, changes: Sequence[Change]) -> list[str]:
        """Return the files that are neither as before the change nor as after it."""
        found = []
        for change in changes:
            present = file_info(self.package / change.path)
            if not (
                same_content(present, change.before)
                or same_content(present, change.after)
            ):
                found.append(change.path)
        return found

    def _write_draft(self, change: Change) -> None:
        info = change.after
        if info is None:
            return
        target = self.package / change.path
        info = _with_true_link(target, info)
        text = b"" if info.link is not None else self.store.load(info.sha256)
        if present := read(target):
            metadata = present.metadata
        else:
            make_parents(self.package, change.path)
            metadata = neighbouring_metadata(self.package, change.path)
        write_draft(target, info, text, metadata)

    def _end(self) -> None:
        """Remove the journal, and everything that only it needed."""
        sync(self.folder)
        self._journal.remove()
        sync(self.folder)
        self._remove_unused(self._record.read())

    def _remove_leftovers(self) -> None:
        """Remove the files that neither the record nor the lock needs.

        Where the record is gone and files are still patched, their originals stay.
        """
        record = self._record.read()
        if record is None and self.store.files() and any(patched_files(self.package)):
            return
        self._remove_unused(record)

    def _remove_unused(self, record: Record | None) -> None:
        known = {self.lock.file, *self._journal.files}
        if record is not None:
            known |= {self._record.file, self._gitignore}
        for file in files_in(self.folder):
            if file not in known:
                file.unlink(missing_ok=True)
        self.store.keep_only(record.texts if record else ())


def _with_true_link(target: Path, info: FileInfo) -> FileInfo:
    """Make a file regular if its link now points to another content."""
    if info.link is not None:
        behind = file_info(target.parent / info.link)
        if behind is None or behind.sha256 != info.sha256:
            return replace(info, link=None)
    return info
