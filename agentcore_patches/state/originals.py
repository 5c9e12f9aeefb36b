"""Original contents of SGLang's files. Nothing is written here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agentcore_patches.disk.filesystem import FOLDER, File, FileInfo, read
from agentcore_patches.disk.privileges import access
from agentcore_patches.errors import SourceConflict
from agentcore_patches.installs.install import Install
from agentcore_patches.state.ownership import is_created
from agentcore_patches.state.snapshot import UNCHANGED, FileState, Snapshot
from agentcore_patches.state.store import Store


class Originals:
    """The original files, and the files as they were at the first read."""

    def __init__(self, install: Install, snapshot: Snapshot) -> None:
        self.install = install
        self.snapshot = snapshot
        self._store = Store(install.package / FOLDER)
        self._seen: dict[str, File | None] = {}

    def texts(self, paths: Iterable[str]) -> dict[str, bytes]:
        """Return the original sources, to which edits are applied, by path.

        Files that the original install does not have are left out.

        Raises:
            SourceConflict: a file is missing, or was edited since it was patched.
            AccessError: a file could not be read.
        """
        with access(self.install.package, UNCHANGED):
            texts = {path: self.of(path)[1] for path in paths}
        return {path: text for path, text in texts.items() if text is not None}

    def for_commit(
        self, files: Mapping[str, bytes]
    ) -> dict[str, tuple[FileInfo | None, bytes | None]]:
        """Return what `of` returns for each file that `commit` handles, in its order.

        Files that are no longer patched come first, the last one first; files that
        do not exist, because another SGLang does not have them, are left out.

        Raises:
            SourceConflict: a file is missing, or another tool changed or created it.
            AccessError: a file could not be read.
        """
        record = self.snapshot.record
        with access(self.install.package, UNCHANGED):
            leaving = [
                path
                for path in reversed(list(record.files if record else ()))
                if path not in files
                and (self.seen(path) is not None or self.snapshot.sglang_change is None)
            ]
            return {path: self.of(path, files.get(path)) for path in [*leaving, *files]}

    def seen(self, path: str) -> File | None:
        """Return the file as it was at the first read."""
        if path not in self._seen:
            self._seen[path] = read(self.install.package / path)
        return self._seen[path]

    def present(self, path: str) -> FileInfo | None:
        file = self.seen(path)
        return file.info if file else None

    def of(
        self, path: str, new: bytes | None = None
    ) -> tuple[FileInfo | None, bytes | None]:
        """Return the saved original if the file is patched, else the present file.

        (None, None) for a file that patches create: it must be missing, or hold `new`.
        """
        seen = self.seen(path)
        state = self.snapshot.files.get(path)
        file = self.install.package / path
        if is_created(path) and state in (None, FileState.ORIGINAL):
            if seen is None or seen.text == new:
                return None, None
            if new is not None:
                raise SourceConflict(
                    f"{file} already exists, and agentcore-patch did not create it, or "
                    f"has lost the record of it. {UNCHANGED}",
                    hint="Remove that file, then apply again.",
                )
        if seen is None:
            remedy = "Restore the file, or reinstall SGLang."
            if state is FileState.MISSING and self.snapshot.sglang_change is None:
                remedy = "`agentcore-patch revert --force` restores it."
            raise SourceConflict(f"{file} is missing. {UNCHANGED}", hint=remedy)
        if state is FileState.EDITED:
            remedy = (
                "Undo the change, or restore the original with `agentcore-patch revert "
                "--force` (which loses the change), repeat the change there, and apply."
            )
            if self.snapshot.sglang_change and not is_created(path):
                remedy = (
                    "Restore the file by reinstalling SGLang, or with `git checkout`."
                )
            raise SourceConflict(
                f"{file} was changed after agentcore-patch patched it, and cannot be "
                f"patched again with that change. {UNCHANGED}",
                hint=remedy,
            )
        if state is FileState.PATCHED and self.snapshot.record is not None:
            info = self.snapshot.record.files[path].original
            return info, self._store.load(info.sha256) if info else None
        return seen.info, seen.text
