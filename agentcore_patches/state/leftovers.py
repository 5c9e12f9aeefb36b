"""Removal of the files of a patched SGLang that pip leaves, because it does not know them.

An uninstall removes the files of the wheel. A folder `sglang` with the state folder and the
landed modules stays, and Python may import it as an empty namespace package.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from agentcore_patches.errors import AccessError, SourceConflict
from agentcore_patches.installs.install import Install
from agentcore_patches.installs.versions import UNKNOWN
from agentcore_patches.state import transaction
from agentcore_patches.state.filesystem import FOLDER, remove_if_empty
from agentcore_patches.state.ownership import is_created
from agentcore_patches.state.privileges import access, rights_of_owner
from agentcore_patches.state.snapshot import UNCHANGED, FileState, Snapshot


def examined(install: Install, *, strict: bool = False, force: bool = False) -> Install:
    """The install, each of its leftovers with the reason why the folder cannot be removed.

    Args:
        strict: raise where leftovers that hide the install cannot be removed.
        force: as for `revert`.

    Raises:
        AccessError, SourceConflict: with `strict`.
    """
    entries = []
    for entry in install.leftovers:
        try:
            kept = _kept(entry.folder, force)
            entries.append(replace(entry, kept=kept))
        except (AccessError, SourceConflict) as error:
            if strict and entry.hides:
                raise
            entries.append(replace(entry, problem=str(error)))
    return replace(install, leftovers=tuple(entries))


def refuse_hiding(install: Install) -> None:
    """Refuse to patch an SGLang that other files in leftovers would keep hidden.

    Raises:
        SourceConflict: there are such leftovers.
    """
    for entry in install.leftovers:
        if entry.hides and entry.kept:
            raise SourceConflict(
                f"Python imports the folder {entry.folder} in place of the SGLang in "
                f"{install.package}. SGLang was uninstalled there, but besides the files "
                f"of agentcore-patch the folder holds {some(entry.kept)}. "
                f"{UNCHANGED}",
                hint="Move these files away, then run the command again.",
            )


def removed(
    install: Install,
    *,
    force: bool = False,
    timeout: float = 60.0,
    notify: Callable[[str], None] | None = None,
) -> Install:
    """Remove agentcore-patch's files of all leftovers; return the install with the rest.

    Leftovers for which `examined` found a problem are left alone.

    Args:
        force: as for `revert`.
        timeout, notify: as for `transaction.locked`.

    Raises:
        AccessError, SourceConflict: leftovers that hide the install cannot be removed.
    """
    if not install.leftovers:
        return install
    entries = []
    for entry in install.leftovers:
        if entry.problem:
            entries.append(entry)
            continue
        try:
            _remove(entry.folder, force, timeout, notify)
            entries.append(replace(entry, kept=tuple(_files(entry.folder))))
        except (AccessError, SourceConflict) as error:
            if entry.hides:
                raise
            entries.append(replace(entry, problem=str(error)))
    importlib.invalidate_caches()  # for the program that calls `apply_patch`
    return replace(install, leftovers=tuple(entries))


def some(names: tuple[str, ...]) -> str:
    """The first names, and the number of the others."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def _kept(folder: Path, force: bool) -> tuple[str, ...]:
    """Return the files in leftovers that a removal would keep.

    Raises:
        SourceConflict: a landed file was changed, and no `force`.
        AccessError: something cannot be read or removed.
    """
    install = _as_install(folder)
    snapshot = transaction.inspect(install)
    transaction.to_restore(install, snapshot, force=force)
    for place in (folder, folder.parent):
        _require_writable(place)
    with access(folder, UNCHANGED):
        return tuple(path for path in _files(folder) if not _is_ours(path, snapshot))


def _remove(
    folder: Path, force: bool, timeout: float, notify: Callable[[str], None] | None
) -> None:
    with transaction.locked(
        _as_install(folder), timeout=timeout, notify=notify
    ) as writer:
        writer.revert(force=force)
    with access(folder, "Only empty folders are left over."):
        # pip leaves some that are empty.
        for inner, _, _ in os.walk(folder, topdown=False):
            if Path(inner) != folder:
                remove_if_empty(Path(inner))
    with access(folder.parent, f"Only {folder} is left over."):
        remove_if_empty(folder)


def _as_install(folder: Path) -> Install:
    return Install(folder, UNKNOWN, None, "leftovers", False, None)


def _files(folder: Path) -> Iterator[str]:
    """Paths of everything below a folder except real folders; links are not followed."""
    for inner, folders, files in os.walk(folder):
        links = [name for name in folders if (Path(inner) / name).is_symlink()]
        for name in sorted([*files, *links]):
            yield str((Path(inner) / name).relative_to(folder))


def _is_ours(path: str, snapshot: Snapshot) -> bool:
    """True for files to remove: of the state folder, landed modules, their bytecode."""
    place = Path(path)
    if str(place.parent) in (FOLDER, f"{FOLDER}/store"):
        return True
    if place.parent.name == "__pycache__" and place.suffix == ".pyc":
        place = place.parent.parent / f"{place.name.partition('.')[0]}.py"
    if snapshot.pending:  # Only the recovery looks at the modules one by one.
        return is_created(str(place))
    # An edited module is removed only by force, which `to_restore` has already allowed.
    return snapshot.files.get(str(place)) in (FileState.PATCHED, FileState.EDITED)


def _require_writable(folder: Path) -> None:
    """Raise AccessError unless the owner of a folder may write into it."""
    with rights_of_owner(folder):
        writable = os.access(folder, os.W_OK, effective_ids=True)
    if not writable:
        raise AccessError(
            f"{folder} cannot be written to, so the files that agentcore-patch had added "
            f"to an uninstalled SGLang cannot be removed. {UNCHANGED}",
            hint="Run the command as the owner, on a writable file system.",
        )
