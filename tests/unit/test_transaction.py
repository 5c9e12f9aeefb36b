"""Replacing files and restoring them."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from unittest import mock

import pytest

from agentcore_patches.installs.install import Install
from agentcore_patches.state import transaction
from tests.unit.small_install import (
    FIRST,
    FOLDER,
    SECOND,
    commit,
    patched,
    revert,
    vanilla,
)


@pytest.mark.usefixtures("unchanged")
def test_a_text_equal_to_its_source_is_not_recorded(install: Install) -> None:
    files = {FIRST: vanilla(FIRST), SECOND: patched(SECOND)}
    with transaction.locked(install) as work:
        assert work.commit(files, patches=["ours"], tool_version="1") == (SECOND,)
    record = transaction.inspect(install).record
    assert record is not None and list(record.files) == [SECOND]
    with transaction.locked(install) as work:
        files = {SECOND: vanilla(SECOND)}
        assert work.commit(files, patches=["ours"], tool_version="1") == (SECOND,)


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
