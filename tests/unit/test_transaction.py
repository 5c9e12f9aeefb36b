"""Replacing files and restoring them; created files, and bytecode."""

from __future__ import annotations

import errno
import importlib.util
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from agentcore_patches.disk.filesystem import digest
from agentcore_patches.errors import AccessError, SourceConflict
from agentcore_patches.installs.install import Install
from tests.unit.small_install import (
    ALL,
    FIRST,
    FOLDER,
    SECOND,
    TRACES,
    commit,
    compile_unchecked,
    patched,
    photograph,
    revert,
    vanilla,
    write,
)
from tests.unit.test_interrupted_transactions import acting_before, interrupt


def test_modes_and_attributes_are_kept(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = install.package / FIRST
    file.chmod(0o4750)
    os.setxattr(file, "user.note", b"kept")
    names = os.listxattr  # And a mode without read permission.
    monkeypatch.setattr(os, "listxattr", lambda file: [*names(file), "security.x"])
    changes: tuple[Callable[[], tuple[str, ...]], ...] = (
        lambda: commit(install, FIRST),
        lambda: revert(install),
    )
    for change in changes:
        assert change() == (FIRST,)
        assert stat.S_IMODE(file.stat().st_mode) == 0o4750
        assert os.getxattr(file, "user.note") == b"kept"


@pytest.mark.usefixtures("unchanged")
def test_a_file_system_without_xattrs_and_folder_syncs_works(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync = os.fsync

    def refuse(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", refuse)
    monkeypatch.setattr(os, "listxattr", mock.Mock(side_effect=OSError))
    assert commit(install, FIRST) == revert(install) == (FIRST,)


def test_the_state_folder_is_readable_under_any_umask(install: Install) -> None:
    mask = os.umask(0o077)
    try:
        commit(install, FIRST)
    finally:
        os.umask(mask)
    folder = install.package / FOLDER
    modes = {stat.S_IMODE(f.stat().st_mode) for f in (folder, folder / "store")}
    assert modes == {stat.S_IMODE(install.package.stat().st_mode)}
    modes = {stat.S_IMODE((folder / f).stat().st_mode) for f in ("state.json", "lock")}
    assert modes == {0o644}
    assert (folder / ".gitignore").read_text() == "*\n"


# Created files


def folder(install: Install) -> Path:
    return install.package / "srt/agentcore"


def test_a_created_file_has_the_mode_of_its_neighbours(install: Install) -> None:
    (install.package / FIRST).chmod(0o755)
    (install.package / "farther.py").touch(0o600)
    (install.package / "srt").chmod(0o750)
    commit(install, TRACES)
    mode = stat.S_IMODE((install.package / TRACES).stat().st_mode)
    assert mode == 0o644
    assert stat.S_IMODE(folder(install).stat().st_mode) == 0o750


@pytest.mark.usefixtures("unchanged")
def test_a_file_that_exists_already_is_not_replaced(install: Install) -> None:
    folder(install).mkdir()
    write(install, TRACES, b"theirs\n")
    before = photograph(install)
    with pytest.raises(SourceConflict, match=rf"{TRACES} already exists"):
        commit(install, TRACES, FIRST)
    assert photograph(install) == before
    (install.package / TRACES).unlink()
    folder(install).rmdir()


def test_an_identical_file_without_a_record_is_adopted(install: Install) -> None:
    before = photograph(install)
    folder(install).mkdir()
    write(install, TRACES, patched(TRACES))
    assert commit(install, TRACES, FIRST) == (FIRST,)
    assert revert(install) == (FIRST, TRACES)
    assert photograph(install) == before


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize(
    ("link", "path"), [("srt/agentcore", TRACES), ("srt/__pycache__", FIRST)]
)
def test_a_folder_that_is_a_link_is_refused(
    link: str, path: str, install: Install, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (install.package / link).symlink_to(elsewhere)
    with pytest.raises(AccessError, match="symbolic link"):
        commit(install, path)
    assert list(elsewhere.iterdir()) == []
    (install.package / link).unlink()


# Bytecode


@pytest.mark.parametrize("damage", [Path.unlink, lambda file: file.write_bytes(b"")])
def test_bytecode_is_not_restored_if_its_source_is_lost_or_revert_fails(
    damage: Callable[[Path], object], install: Install
) -> None:
    cache = compile_unchecked(install.package / FIRST, vanilla(FIRST))
    stored = install.package / FOLDER / "store" / digest(cache.read_bytes())
    commit(install, FIRST)
    before = photograph(install)
    interrupt(lambda: revert(install), 2)
    assert photograph(install) == before
    damage(stored)
    assert revert(install) == (FIRST,)
    assert list(cache.parent.iterdir()) == []


def test_other_files_in_the_bytecode_folder_are_left_alone(install: Install) -> None:
    (install.package / "srt/deep/__pycache__").touch()
    other = compile_unchecked(install.package / "srt/first_of_all.py", b"")
    (other.parent / "first.cpython-311.txt").touch()
    (other.parent / "first.folder.pyc").mkdir()
    (other.parent / "first.\udcff.pyc").touch()
    before = photograph(install)
    commit(install, FIRST, SECOND)
    assert len(list(other.parent.iterdir())) == 4
    revert(install)
    assert photograph(install) == before


def test_bytecode_written_during_a_change_is_removed_too(install: Install) -> None:
    caches: list[Path] = []

    def compile_all() -> None:
        for source in (install.package / path for path in ALL):
            caches.append(compile_unchecked(source, source.read_bytes()))

    with mock.patch.object(Path, "replace", acting_before(1, compile_all)):
        commit(install, *ALL)
    assert len(caches) == len(ALL)
    assert not any(cache.exists() for cache in caches)


def test_a_new_source_gets_a_time_that_matches_no_bytecode(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_700_000_000
    source = install.package / FIRST
    os.utime(source, (now, now))
    cache = compile_unchecked(source, vanilla(FIRST))
    stamp = (now + 1).to_bytes(4, "little")
    cache.write_bytes(importlib.util.MAGIC_NUMBER + bytes(4) + stamp + bytes(4))
    monkeypatch.setattr(time, "time_ns", lambda: now * 1_000_000_000 + 5)
    commit(install, FIRST)
    assert int(source.stat().st_mtime) == now + 2
