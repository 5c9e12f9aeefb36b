"""Transactions that fail or are killed, and their leftovers."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from agentcore_patches.errors import AccessError, SourceConflict
from agentcore_patches.installs.install import Install
from agentcore_patches.state import snapshot as snapshots
from agentcore_patches.state import transaction
from agentcore_patches.state.filesystem import digest
from agentcore_patches.state.records import JournalFile, RecordFile
from agentcore_patches.state.snapshot import Snapshot
from tests.unit.small_install import (
    ALL,
    FIRST,
    FOLDER,
    SECOND,
    THIRD,
    TRACES,
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


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_an_interrupt_in_the_middle_undoes_the_rest(
    number: int, install: Install
) -> None:
    interrupt(lambda: commit(install, TRACES, *ALL), number)


def test_an_interrupted_forced_change_does_not_remove_a_file_again(
    install: Install,
) -> None:
    commit(install, *ALL)
    (install.package / THIRD).unlink()
    interrupt(lambda: revert(install, force=True), 2)
    assert read(install, THIRD) == vanilla(THIRD)
    assert read(install, SECOND) == patched(SECOND)


def test_an_interrupted_forced_change_keeps_other_peoples_edits(
    install: Install,
) -> None:
    commit(install, *ALL)
    write(install, THIRD, patched(THIRD) + b"# more\n")
    before = photograph(install)
    interrupt(lambda: revert(install, force=True), 2)
    assert photograph(install) == before


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ESTALE, "Stale", "draft", None, "target"), "target: Stale"),
        (SourceConflict("Found."), "Found"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
    ],
)
def test_a_disk_that_fails_midway_is_not_reported_as_unchanged(
    error: BaseException, said: str, install: Install
) -> None:
    gone = mock.patch.object(Path, "exists", side_effect=OSError)

    def go() -> None:
        gone.start()
        raise error

    with (
        mock.patch.object(Path, "replace", acting_before(2, go)),
        pytest.raises(AccessError, match=rf"^{said}.*command repairs this"),
    ):
        commit(install, *ALL)
    gone.stop()
    assert recover(install)[1] == "finished an interrupted apply of ours"


@pytest.mark.parametrize(
    "change",
    [lambda install: commit(install, *ALL, edition="two"), revert],
    ids=["commit", "revert"],
)
def test_an_interrupt_after_the_record_is_written_undoes_nothing(
    change: Callable[[Install], object],
    install: Install,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = photograph(install)
    commit(install, *ALL)
    switch = RecordFile.switch

    def switch_and_interrupt(record: RecordFile, *, clears: bool) -> None:
        switch(record, clears=clears)
        raise KeyboardInterrupt

    with monkeypatch.context() as late, pytest.raises(KeyboardInterrupt):
        late.setattr(RecordFile, "switch", switch_and_interrupt)
        change(install)
    now = [read(install, path) for path in ALL]
    snapshot, line = recover(install)
    assert line and line.startswith("finished an interrupted ")
    assert [read(install, path) for path in ALL] == now
    assert snapshot.record is None or snapshot.holds(["ours"], "two")
    revert(install)
    assert photograph(install) == before


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


@pytest.mark.usefixtures("unchanged")
def test_an_error_in_the_caller_leaves_no_state(install: Install) -> None:
    with pytest.raises(RuntimeError), transaction.locked(install):
        raise RuntimeError


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize(
    ("call", "number", "said"),
    [
        ("fcntl.flock", errno.ENOLCK, "lock: .* has no locks: install SGLang on"),
        ("os.ftruncate", errno.ENOSPC, "lock: .* Free some space"),
        ("os.fchmod", errno.EPERM, f"{FOLDER}: .* to one user"),
        ("os.fsync", errno.EIO, "sglang: Input/output"),
        ("os.read", errno.EIO, "first.py: "),
        ("os.utime", errno.EDQUOT, f"first.py{FOLDER}: .* Free some space"),
    ],
)
def test_an_error_on_a_file_descriptor_names_the_file(
    call: str,
    number: int,
    said: str,
    install: Install,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(descriptor: int, *arguments: object, **named: object) -> None:
        # Some calls name the descriptor.
        names = [descriptor] if call == "os.utime" else []
        raise OSError(number, os.strerror(number), *names)

    opened = list(Path("/proc/self/fd").iterdir())
    with monkeypatch.context() as failing:
        failing.setattr(call, fail)
        with pytest.raises(AccessError, match=said):
            commit(install, FIRST)
    assert list(Path("/proc/self/fd").iterdir()) == opened


def kill(install: Install, number: int, change: Callable[[], object]) -> None:
    """Run a change in a process that dies before its `number`th replacement."""
    pid = os.fork()
    if pid == 0:
        dying = acting_before(number, lambda: os._exit(9))
        Path.replace = dying  # type: ignore[assignment, method-assign]
        change()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9


def test_the_next_command_finishes_a_killed_commit(install: Install) -> None:
    kill(install, 2, lambda: commit(install, *ALL))
    assert [read(install, path) == patched(path) for path in ALL] == [1, 0, 0]
    before = photograph(install)
    snapshot = transaction.inspect(install)
    assert snapshot.pending == "an unfinished apply of ours"
    assert photograph(install) == before

    with mock.patch.object(transaction, "sync") as sync:
        snapshot, line = recover(install)
    assert sync.mock_calls[0] == mock.call((install.package / FIRST).parent)
    assert line == "finished an interrupted apply of ours"
    assert snapshot.applied and snapshot.pending is None
    assert [read(install, path) for path in ALL] == [patched(path) for path in ALL]
    assert recover(install) == (snapshot, None)


@pytest.mark.usefixtures("unchanged")
def test_a_killed_commit_is_undone_if_its_record_is_damaged(install: Install) -> None:
    kill(install, 2, lambda: commit(install, *ALL))
    write(install, f"{FOLDER}/state.next", b"{}")
    assert recover(install)[1] == "undid an interrupted apply of ours"


def test_the_next_command_finishes_a_killed_revert(install: Install) -> None:
    before = photograph(install)
    commit(install, *ALL)
    kill(install, 2, lambda: revert(install))
    with transaction.locked(install) as work:
        assert work.recovered == "finished an interrupted revert"
        assert work.snapshot.record is None
    assert photograph(install) == before


def test_a_change_with_only_a_journal_is_not_in_place(
    install: Install,
) -> None:
    with mock.patch.object(JournalFile, "remove", lambda journal: os._exit(9)):
        kill(install, 1000, lambda: commit(install, *ALL))
    assert not transaction.inspect(install).holds(["ours"], "one")
    snapshot, line = recover(install)
    assert line == "finished an interrupted apply of ours"
    assert snapshot.holds(["ours"], "one")


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


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize(
    "leftover", ["", "lock", "prepared.json.tmp", "store/text.tmp"]
)
def test_leftovers_of_a_command_that_changed_nothing_are_removed(
    leftover: str, install: Install
) -> None:
    folder = install.package / FOLDER
    folder.mkdir()
    if leftover:
        (folder / leftover).parent.mkdir(exist_ok=True)
        (folder / leftover).touch()
    pending = transaction.inspect(install).pending
    assert pending == "leftovers of an unfinished command"
    snapshot, _ = recover(install)
    assert snapshot.pending is None


def test_leftovers_beside_a_record_are_removed(install: Install) -> None:
    commit(install, FIRST)
    for kept_by_nfs in (".nfs0001", "store/.nfs0002"):  # They cannot be removed.
        (install.package / FOLDER / kept_by_nfs).touch()
    before = photograph(install)
    for leftover in ("prepared.json.tmp", "store/text.tmp"):
        (install.package / FOLDER / leftover).touch()
    recover(install)
    assert photograph(install) == before


@pytest.mark.parametrize("number", [errno.ENOENT, errno.ENOTEMPTY, errno.EIO])
def test_a_state_folder_that_cannot_be_removed_is_reported(
    number: int, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first two errors are those if another command got the lock meanwhile."""
    commit(install, FIRST)
    rmdir = Path.rmdir

    def fail(folder: Path) -> None:
        if folder.name == FOLDER:
            raise OSError(number, os.strerror(number))
        rmdir(folder)

    monkeypatch.setattr(Path, "rmdir", fail)
    if number != errno.EIO:
        revert(install)
        return
    with pytest.raises(AccessError, match=rf"Only \S+{FOLDER} was left over"):
        revert(install)
    assert read(install, FIRST) == vanilla(FIRST)


@pytest.mark.parametrize("number", [1, 3])
def test_a_record_of_another_format_is_refused(number: int, install: Install) -> None:
    commit(install, FIRST)
    file = install.package / FOLDER / "state.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"format": number}))
    before = photograph(install)
    for command in (
        lambda: transaction.inspect(install),
        lambda: recover(install),
        lambda: revert(install),
        lambda: commit(install, FIRST, edition="two"),
    ):
        with pytest.raises(AccessError, match=r"state\.json cannot be read"):
            command()
    assert photograph(install) == before


def test_a_damaged_original_is_not_restored(install: Install) -> None:
    commit(install, FIRST)
    write(install, f"{FOLDER}/store/{digest(vanilla(FIRST))}", b"damaged")
    before = photograph(install)
    with pytest.raises(AccessError, match="not the text that was saved"):
        revert(install)
    assert photograph(install) == before


def test_a_reinstall_repairs_a_damaged_original(install: Install) -> None:
    commit(install, FIRST)
    write(install, f"{FOLDER}/store/{digest(vanilla(FIRST))}", b"damaged")
    write(install, FIRST, vanilla(FIRST))
    assert commit(install, FIRST) == (FIRST,)
    assert revert(install) == (FIRST,)
    assert read(install, FIRST) == vanilla(FIRST)


def test_a_package_that_disappears_is_an_error(install: Install) -> None:
    shutil.rmtree(install.package)
    with (
        pytest.raises(AccessError, match="No such file"),
        transaction.locked(install, timeout=1),
    ):
        pass


CHECKSUM = "0810d6422bf1b257107422432143f28bc25a9ce39ccf40b60018b6cda8fced3a"


def test_a_record_has_the_format_of_the_versions_since_0_2_0(install: Install) -> None:
    commit(install, FIRST)
    document = json.loads((install.package / FOLDER / "state.json").read_bytes())
    # If the checksum differs, the form has changed: increase the format.
    assert (document["format"], document["checksum"]) == (2, CHECKSUM)
