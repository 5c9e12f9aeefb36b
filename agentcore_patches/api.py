"""`apply`, `status`, `revert` for a program: typed results, typed errors, no printing.

Where hashes show that everything is in place, nothing is planned and libcst is not
imported.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import combinations
from typing import TypeAlias

from agentcore_patches._version import full_version
from agentcore_patches.disk.filesystem import FOLDER, digest
from agentcore_patches.disk.privileges import access
from agentcore_patches.errors import (
    AgentcoreError,
    SourceConflict,
    UnsupportedTarget,
    refuse_unknown,
)
from agentcore_patches.installs import install as installs
from agentcore_patches.installs.install import Install, StrPath
from agentcore_patches.patches import registry
from agentcore_patches.patches.releases import (
    FIRST_WITH_RUST,
    RUST_SERVER,
    is_between,
)
from agentcore_patches.planning.plan import make_plan
from agentcore_patches.planning.run import plan_apply
from agentcore_patches.planning.selection import Selection
from agentcore_patches.results import (
    ApplyResult,
    FileStatus,
    PatchState,
    RevertResult,
    StatusResult,
)
from agentcore_patches.state import transaction
from agentcore_patches.state.originals import Originals
from agentcore_patches.state.ownership import is_created, is_ours
from agentcore_patches.state.records import is_same_build
from agentcore_patches.state.snapshot import (
    FileState,
    Snapshot,
    created_files,
    patched_files,
)

ALL = "all"

Notify: TypeAlias = Callable[[str], None]


def apply(
    *,
    sglang_dir: StrPath | None = None,
    python: StrPath | None = None,
    extras: Sequence[str] = (),
    without: Sequence[str] = (),
    unlisted: bool = False,
    dry_run: bool = False,
    diff: bool = False,
    lock_timeout: float = 60.0,
    notify: Notify | None = None,
) -> ApplyResult:
    """Patch SGLang with the core, and with the extras that it has or gets.

    Args:
        sglang_dir: the `sglang` package folder, the one that holds `srt/`.
        python: the interpreter that imports it. Without either, this interpreter.
        extras: names of extras to add; `all` adds all of them.
        without: names of extras to leave out or remove; `all` for all of them.
        unlisted: also patch an unsupported SGLang, if the edits of a supported release
            fit it.
        dry_run: report the changes, and write nothing at all.
        diff: add a unified diff to each file of the result.
        lock_timeout: seconds to wait for another command.
        notify: called with a line when the command has to wait, and with a line about
            what it finished or undid of an interrupted command.

    Raises:
        UsageError, UnsupportedTarget, SourceConflict, AccessError: nothing was changed.
    """
    added, removed = known_extras(extras), known_extras(without)
    install = installs.find(sglang_dir, python)
    if not unlisted:
        install.require_release()
    snapshot = transaction.inspect(install)
    patches = _selected(install, snapshot, added, removed)
    in_place = snapshot.holds(patches, tool_version())
    if in_place or (dry_run and snapshot.pending):
        return ApplyResult(
            install,
            patches,
            changed=not in_place,
            dry_run=dry_run,
            pending=snapshot.pending,
        )
    if dry_run:
        return plan_apply(patches, Originals(install, snapshot)).dry_run(diff=diff)
    with transaction.locked(install, timeout=lock_timeout, notify=notify) as writer:
        patches = _selected(install, writer.snapshot, added, removed)
        if writer.snapshot.holds(patches, tool_version()):
            return ApplyResult(install, patches, recovered=writer.recovered)
        planned = plan_apply(patches, writer.originals)
        changed = writer.commit(
            planned.plan.files, patches=patches, tool_version=tool_version()
        )
    return planned.result(changed, diff=diff, recovered=writer.recovered)


def status(
    *, sglang_dir: StrPath | None = None, python: StrPath | None = None
) -> StatusResult:
    """Report the patches in place. Writes nothing.

    Args:
        sglang_dir, python: as for `apply`.

    Raises:
        UsageError, UnsupportedTarget, AccessError
    """
    install = installs.find(sglang_dir, python)
    snapshot = transaction.inspect(install)

    record = None if snapshot.superseded else snapshot.record
    now = installs.read_texts(install, _unpatched(install, snapshot))
    marked = {path for path, text in now.items() if is_ours(path, text)}
    recorded = record is not None or snapshot.pending is not None or not marked
    patches: tuple[str, ...] = ()
    if record:
        patches = _selected(install, snapshot)
    elif not recorded:
        patches = _patches_in(install, now)
    return StatusResult(
        install=install,
        state=_state_of_patches(snapshot) if patches else PatchState.ABSENT,
        patches=patches,
        applied_by=record.tool_version.rpartition("+")[0] if record else None,
        recorded=recorded,
        files=_file_statuses(install, snapshot, now, marked),
        pending=snapshot.pending,
        sglang_change=snapshot.sglang_change,
        rust_server=_asks_for_rust_server(install),
    )


def revert(
    *,
    sglang_dir: StrPath | None = None,
    python: StrPath | None = None,
    force: bool = False,
    dry_run: bool = False,
    lock_timeout: float = 60.0,
    notify: Notify | None = None,
) -> RevertResult:
    """Restore every byte that was there before the first `apply`.

    Args:
        sglang_dir, python, lock_timeout, notify: as for `apply`.
        force: also restore files that were changed since, and lose these changes.
        dry_run: report the files to restore, but leave SGLang's files as they are.

    An original of one release is never written into another: if SGLang has changed
    since, only the files of agentcore-patch are removed.

    Raises:
        UsageError, UnsupportedTarget, AccessError: nothing was changed.
        SourceConflict: a file was changed since, or the originals of the patched files
            are unknown; nothing was changed.
    """
    install = installs.find(sglang_dir, python)
    snapshot = transaction.inspect(install)
    changed: tuple[str, ...] = ()
    recovered = None
    if dry_run:
        changed = tuple(transaction.to_restore(install, snapshot, force=force))
    elif snapshot.record is not None or snapshot.pending is not None:
        with transaction.locked(install, timeout=lock_timeout, notify=notify) as writer:
            recovered = writer.recovered
            snapshot = writer.snapshot
            changed = writer.revert(force=force)
    if snapshot.record is None:
        _refuse_unrecorded(install)
    record = snapshot.record
    wheel = installs.pristine(install, record.originals if record else {})
    return RevertResult(
        install=install,
        patches=_selected(install, snapshot) if record else (),
        files=tuple(
            FileStatus(path, FileState.ORIGINAL, wheel.get(path)) for path in changed
        ),
        changed=bool(changed),
        recovered=recovered,
        sglang_change=snapshot.sglang_change,
        dry_run=dry_run,
    )


def apply_patch() -> bool:
    """Apply the core, and the extras in place, to this interpreter's SGLang; never raises.

    Returns True if any file was changed, else False. The logger `agentcore_patches` gets
    the reason: "Nothing to do" (info) if it was already in place,
    "Found no SGLang" or "SGLang was not patched" (error). `apply` raises instead.
    """
    import logging

    log = logging.getLogger("agentcore_patches")
    try:
        result = apply(notify=log.info)
    except UnsupportedTarget as error:
        log.error("Found no SGLang that can be patched: %s", error)
        return False
    except AgentcoreError as error:
        log.error("SGLang was not patched: %s", error)
        return False
    except Exception:
        log.exception("SGLang was not patched, because of a bug in agentcore-patch")
        return False
    log.info(
        "%s SGLang %s in %s: %s",
        "Patched" if result.changed else "Nothing to do, the patches are in place in",
        result.install.version,
        result.install.package,
        ", ".join(result.patches),
    )
    if result.changed and "sglang.srt" in sys.modules:
        log.warning(
            "SGLang was imported before it was patched: this process keeps the unpatched "
            "code. Call apply_patch() before SGLang is imported."
        )
    return result.changed


def known_extras(names: Sequence[str]) -> tuple[str, ...]:
    """Return the extras that a user names; `all` names all of them.

    Raises:
        UsageError: there is no extra of such a name.
    """
    known = registry.extras()
    names = (names,) if isinstance(names, str) else names
    refuse_unknown(names, (*known, ALL), "extra", "extras")
    return known if ALL in names else tuple(names)


def _selected(
    install: Install,
    snapshot: Snapshot,
    added: Iterable[str] = (),
    removed: Iterable[str] = (),
) -> tuple[str, ...]:
    """Return the core and its extras: those in place, changed as asked.

    Without a record, the sources show what is in place.
    """
    present: Sequence[str] = ()
    if snapshot.record:
        present = snapshot.record.patches
    elif _marked(install):
        paths = _unpatched(install, snapshot)
        present = _patches_in(install, installs.read_texts(install, paths))
    extras = {*present, *added} - {*removed}
    return (registry.CORE, *(name for name in registry.extras() if name in extras))


def _asks_for_rust_server(install: Install) -> bool:
    """True if a server started here would be the Rust server."""
    asked = os.environ.get(RUST_SERVER, "").lower() in ("true", "1", "yes", "y")
    return asked and (
        install.release is None or is_between(install.release, FIRST_WITH_RUST, "")
    )


def tool_version() -> str:
    """This version with a hash of its patches, so that `apply` sees a changed patch."""
    return f"{full_version()}+{registry.fingerprint()[:12]}"


def _unpatched(install: Install, snapshot: Snapshot) -> list[str]:
    """Files that are not patched, so that their text can be compared with the wheel's."""
    ours = (FileState.PATCHED, FileState.EDITED)
    known = [*registry.WRITING_ORDER, *snapshot.files]
    paths = dict.fromkeys([*known, *created_files(install.package)])
    return [path for path in paths if snapshot.files.get(path) not in ours]


def _file_statuses(
    install: Install, snapshot: Snapshot, now: Mapping[str, bytes], marked: set[str]
) -> tuple[FileStatus, ...]:
    """Every file that a patch may change.

    `now` has the texts of `_unpatched` ones; those that are `marked` hold something of
    ours.
    """
    hashes = snapshot.record.originals if snapshot.record else {}
    hashes |= {path: digest(text) for path, text in now.items()}
    known = {path: name for path, name in hashes.items() if path not in marked}
    wheel = installs.pristine(install, known)
    states = {
        path: FileState.MISSING
        for path in registry.WRITING_ORDER
        if install.release is not None and registry.is_file_of(install.release, path)
    }
    states |= dict.fromkeys(now, FileState.ORIGINAL)
    states |= dict.fromkeys(marked, FileState.PATCHED)
    states |= snapshot.files
    return tuple(
        FileStatus(path, state, wheel.get(path))
        for path, state in states.items()
        if state is not FileState.ORIGINAL or _may_change(install, path)
    )


def _may_change(install: Install, path: str) -> bool:
    """True if patches may change this file; any file if the release is unknown."""
    if install.release is None:
        return not is_created(path)
    return registry.is_file_of(install.release, path)


def _state_of_patches(snapshot: Snapshot) -> PatchState:
    """Return the state of patches that are there, recorded or not."""
    record = snapshot.record
    if record is None:
        return PatchState.IN_PLACE
    if not snapshot.applied:
        return PatchState.CHANGED
    current = is_same_build(record.tool_version, tool_version())
    in_place = current and not snapshot.sglang_change
    return PatchState.IN_PLACE if in_place else PatchState.OUTDATED


def _patches_in(install: Install, texts: Mapping[str, bytes]) -> tuple[str, ...]:
    """Return the patches of which all edits are in these texts; plans them again."""
    release, extras = install.release, registry.extras()
    for count in range(len(extras), -1, -1):
        for chosen in combinations(extras, count) if release else ():
            selection = Selection((registry.CORE, *chosen), str(release))
            with suppress(SourceConflict, KeyError):
                if not make_plan(texts, selection).files:
                    return selection.patches
    return ()


def _marked(install: Install) -> list[str]:
    with access(install.package):
        return list(patched_files(install.package))


def _refuse_unrecorded(install: Install) -> None:
    if marked := _marked(install):
        release = install.release or install.version
        added = (
            f"; then remove {install.package / registry.LANDING}"
            if any(map(is_created, marked))
            else ""
        )
        count = "1 file is" if len(marked) == 1 else f"{len(marked)} files are"
        raise SourceConflict(
            f"{count} patched in {install.package}, but the original files were not "
            f"found: the folder {FOLDER}, where they are saved, is gone, or has no "
            "state.json. Nothing was changed.",
            hint="To get the originals back, reinstall SGLang (`pip install "
            f"--force-reinstall --no-deps sglang=={release}`), or `git checkout` the "
            f"files in a checkout{added}. `agentcore-patch revert -v` names the files.",
            details=tuple(marked),
        )
