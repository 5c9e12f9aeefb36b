"""Results of `apply`, `status` and `revert`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal

from agentcore_patches.installs.install import Install
from agentcore_patches.state.snapshot import FileState


@dataclass(frozen=True)
class FileChange:
    """Change of one file by `apply`, or in a dry run by a later `apply`.

    Attributes:
        path: below the `sglang` package.
        applied: how many edits were made in the original text.
        present: how many edits the original text already contained.
        action: `restored` is a file that only patches changed that are now removed.
        pristine: whether the original is the wheel's file; None if unknown.
        diff: unified, from the text before to the text after; empty unless requested.
    """

    path: str
    applied: int
    present: int
    action: Literal["patched", "restored", "unchanged"]
    pristine: bool | None
    diff: str


@dataclass(frozen=True)
class EditOutcome:
    """Outcome of one edit in a file.

    `name` is the hook's, as `list --edits` has it; `scope` is empty where the
    edit is of the whole file.
    """

    patch: str
    name: str
    file: str
    scope: str
    description: str
    outcome: Literal["applied", "present"]


@dataclass(frozen=True)
class ApplyResult:
    """Result of `apply`.

    Attributes:
        install: the SGLang that was patched.
        patches: the core and the extras in place now; in a dry run, that would be.
        removed: extras that were removed, or would be.
        files: in writing order; empty if hashes showed that there is nothing to do.
        edits: one for each edit; empty if `files` is.
        changed: true if any file was changed; in a dry run, would be.
        dry_run: true if the command writes nothing.
        recorded: False if the sources already contained the patches and the originals
            are unknown, so that `revert` cannot restore them.
        recovered: the work of an interrupted command that was finished or undone, in one
            line.
        pending: in a dry run, the work of an unfinished command, which `apply` would
            handle before it plans anything; else None.
        patched_as: the release whose edits were made in an unsupported SGLang; else None.
        sglang_change: how SGLang changed since the last apply, as a clause; None if it
            is the same.
    """

    install: Install
    patches: tuple[str, ...]
    removed: tuple[str, ...] = ()
    files: tuple[FileChange, ...] = ()
    edits: tuple[EditOutcome, ...] = ()
    changed: bool = False
    dry_run: bool = False
    recorded: bool = True
    recovered: str | None = None
    pending: str | None = None
    sglang_change: str | None = None
    patched_as: str | None = None


class PatchState(str, Enum):
    """State of the patches in an install."""

    IN_PLACE = "in place"
    OUTDATED = "outdated"
    """In place, as another version of this package wrote it."""
    CHANGED = "changed"
    """Incomplete: files were changed since, or a command was interrupted."""
    ABSENT = "not applied"


@dataclass(frozen=True)
class FileStatus:
    """The state of one file.

    Attributes:
        path: below the `sglang` package.
        state: ORIGINAL also if it was never patched.
        pristine: whether it is the wheel's file, or was before it was patched; None if
            unknown.
    """

    path: str
    state: FileState
    pristine: bool | None


@dataclass(frozen=True)
class StatusResult:
    """State of the patches in an install.

    Attributes:
        install: the SGLang that was inspected.
        state: the state of the core and its extras.
        patches: the core and the extras that were applied; empty if none were.
        applied_by: the version of this package that applied them; None if none did, or
            if unknown.
        recorded: False if the sources contain patches and the originals are unknown.
        files: every file that a patch changes.
        pending: the work of an unfinished command, which is still running or was killed;
            None if there is none. The next `apply` or `revert` finishes or undoes it.
        sglang_change: as for `apply`.
        rust_server: whether the environment of this command selects SGLang's Rust server,
            which does not run the patched code.
    """

    install: Install
    state: PatchState
    patches: tuple[str, ...]
    applied_by: str | None
    recorded: bool
    files: tuple[FileStatus, ...]
    pending: str | None
    sglang_change: str | None
    rust_server: bool = False

    @property
    def complete(self) -> bool:
        """True if everything that was applied is in place and up to date."""
        return self.state is PatchState.IN_PLACE


@dataclass(frozen=True)
class RevertResult:
    """Result of `revert`.

    Attributes:
        install: the SGLang that was reverted.
        patches: the core and the extras that were removed; empty if there were none.
        files: the files that were restored, with their states now.
        changed: whether any file was changed.
        recovered: as for `apply`.
        sglang_change: as for `apply`.
        dry_run: true if nothing was written; the other keys describe what would be done.
    """

    install: Install
    patches: tuple[str, ...]
    files: tuple[FileStatus, ...]
    changed: bool
    recovered: str | None
    sglang_change: str | None
    dry_run: bool = False
