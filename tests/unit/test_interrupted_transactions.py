"""Transactions that fail or are killed, and their leftovers."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from agentcore_patches.disk.filesystem import digest
from agentcore_patches.installs.install import Install
from agentcore_patches.state import snapshot as snapshots
from agentcore_patches.state import transaction
from agentcore_patches.state.records import RecordFile
from agentcore_patches.state.snapshot import Snapshot
from tests.unit.small_install import (
    ALL,
    FIRST,
    FOLDER,
    SECOND,
    THIRD,
    commit,
    patched,
    photograph,
    read,
    recover,
    revert,
    vanilla,
    write,
)


def interrupt(change: Callable[[], object], number: int) -> None:
    """Interrupt a change before its `number`th replacement."""
    replace = acting_before(number, mock.Mock(side_effect=KeyboardInterrupt))
    with mock.patch.object(Path, "replace", replace), pytest.raises(KeyboardInterrupt):
        change()


def acting_before(number: int, act: Callable[[], None]) -> Callable[[Path, Path], Path]:
    """A `Path.replace` that first acts at the `number`th call for a source."""
    replace_file = Path.replace
    calls = iter(range(1, 1000))

    def replace(draft: Path, target: Path) -> Path:
        if draft.name.endswith(FOLDER) and next(calls) == number:
            act()
        return replace_file(draft, target)

    return replace


def test_an_interrupted_forced_change_keeps_edits_and_restored_files(
    install: Install,
) -> None:
    commit(install, *ALL)
    write(install, SECOND, edited := patched(SECOND) + b"# more\n")
    (install.package / THIRD).unlink()
    interrupt(lambda: revert(install, force=True), 3)
    assert read(install, THIRD) == vanilla(THIRD)
    assert read(install, SECOND) == edited
    assert read(install, FIRST) == patched(FIRST)


def test_an_interrupt_after_the_record_is_written_undoes_nothing(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    switch = RecordFile.switch

    def switch_and_interrupt(record: RecordFile, *, clears: bool) -> None:
        switch(record, clears=clears)
        raise KeyboardInterrupt

    with monkeypatch.context() as late, pytest.raises(KeyboardInterrupt):
        late.setattr(RecordFile, "switch", switch_and_interrupt)
        commit(install, *ALL)
    snapshot, line = recover(install)
    assert line == "finished an interrupted apply of ours"
    assert snapshot.holds(["ours"], "one")


ON_DISK = """
sync .agentcore-patch/store/TEXT.tmp
write .agentcore-patch/store/TEXT
sync .agentcore-patch/store/TEXT.tmp
write .agentcore-patch/store/TEXT
sync .agentcore-patch/store
sync .agentcore-patch/state.next.tmp
write .agentcore-patch/state.next
sync .agentcore-patch/prepared.json.tmp
write .agentcore-patch/prepared.json
sync .agentcore-patch
sync .
sync srt/deep/.second.py.agentcore-patch
sync srt/.first.py.agentcore-patch
write .agentcore-patch/committed.json
sync .agentcore-patch
write srt/deep/second.py
sync srt/deep
write srt/first.py
sync srt
write .agentcore-patch/state.json
sync .agentcore-patch
remove .agentcore-patch/committed.json
sync .agentcore-patch
remove .agentcore-patch/store/TEXT
remove .agentcore-patch/store/TEXT
"""
"""Transactions that a power failure may stop at any line."""


def test_a_change_is_synced_in_order(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(install, SECOND)
    done: list[str] = []
    fsync, replace_file, unlink = os.fsync, Path.replace, Path.unlink

    def note(what: str, place: Path) -> None:
        name = re.sub("[0-9a-f]{64}", "TEXT", os.path.relpath(place, install.package))
        done.append(f"{what} {name}\n")

    def noting_fsync(descriptor: int) -> None:
        # Only after it has its mode and its time.
        assert stat.S_IMODE(os.fstat(descriptor).st_mode) != 0o600
        note("sync", Path(f"/proc/self/fd/{descriptor}").readlink())
        fsync(descriptor)

    def noting_replace(draft: Path, target: Path) -> Path:
        note("write", target)
        return replace_file(draft, target)

    def noting_unlink(file: Path, missing_ok: bool = False) -> None:
        if file.exists():
            note("remove", file)
        unlink(file, missing_ok)

    monkeypatch.setattr(os, "fsync", noting_fsync)
    monkeypatch.setattr(Path, "replace", noting_replace)
    monkeypatch.setattr(Path, "unlink", noting_unlink)
    commit(install, FIRST, edition="two")
    assert "".join(done) == ON_DISK.lstrip()


def kill(install: Install, number: int, change: Callable[[], object]) -> None:
    """Run a change in a process that dies before its `number`th replacement."""
    pid = os.fork()
    if pid == 0:
        dying = acting_before(number, lambda: os._exit(9))
        Path.replace = dying  # type: ignore[assignment, method-assign]
        change()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9


def test_a_recovery_syncs_what_the_killed_command_replaced(install: Install) -> None:
    kill(install, 2, lambda: commit(install, *ALL))
    with mock.patch.object(transaction, "sync") as sync:
        recover(install)
    assert sync.mock_calls[0] == mock.call((install.package / FIRST).parent)


@pytest.mark.usefixtures("unchanged")
def test_a_killed_commit_is_undone_if_its_record_is_damaged(install: Install) -> None:
    kill(install, 2, lambda: commit(install, *ALL))
    write(install, f"{FOLDER}/state.next", b"{}")
    assert recover(install)[1] == "undid an interrupted apply of ours"


def test_an_inspection_during_a_change_is_repeated(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(install, FIRST)
    look = snapshots._look

    def look_before_a_commit(install: Install, folder: Path) -> Snapshot:
        found = look(install, folder)
        monkeypatch.setattr(snapshots, "_look", look)
        commit(install, FIRST, edition="two")
        return found

    monkeypatch.setattr(snapshots, "_look", look_before_a_commit)
    assert transaction.inspect(install).holds(["ours"], "two")


def test_recovery_keeps_files_that_others_changed_meanwhile(install: Install) -> None:
    before = photograph(install)
    kill(install, 3, lambda: commit(install, *ALL))
    write(install, SECOND, b"by hand\n")
    _, line = recover(install)
    assert line == (
        "undid an interrupted apply of ours; not touched, because another process "
        f"changed them: {SECOND}"
    )
    after = photograph(install)
    assert after.pop(SECOND)[-1] == b"by hand\n"
    before.pop(SECOND)
    assert after == before


def test_leftovers_beside_a_record_are_removed(install: Install) -> None:
    commit(install, FIRST)
    for kept_by_nfs in (".nfs0001", "store/.nfs0002"):  # They cannot be removed.
        (install.package / FOLDER / kept_by_nfs).touch()
    before = photograph(install)
    for leftover in ("prepared.json.tmp", "store/text.tmp"):
        (install.package / FOLDER / leftover).touch()
    recover(install)
    assert photograph(install) == before


def test_a_reinstall_repairs_a_damaged_original(install: Install) -> None:
    commit(install, FIRST)
    write(install, f"{FOLDER}/store/{digest(vanilla(FIRST))}", b"damaged")
    write(install, FIRST, vanilla(FIRST))
    assert commit(install, FIRST) == (FIRST,)
    assert revert(install) == (FIRST,)
    assert read(install, FIRST) == vanilla(FIRST)


CHECKSUM = "0810d6422bf1b257107422432143f28bc25a9ce39ccf40b60018b6cda8fced3a"


def test_a_record_has_the_format_of_the_versions_since_0_2_0(install: Install) -> None:
    commit(install, FIRST)
    document = json.loads((install.package / FOLDER / "state.json").read_bytes())
    # If the checksum differs, the form has changed: increase the format.
    assert (document["format"], document["checksum"]) == (2, CHECKSUM)
