"""Files that another program changed since they were patched."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

from agentcore_patches.errors import SourceConflict
from agentcore_patches.installs.install import Install
from agentcore_patches.state import transaction
from agentcore_patches.state.originals import Originals
from agentcore_patches.state.snapshot import FileState, patched_files
from tests.helpers.records import write_dist_info
from tests.unit.small_install import (
    ALL,
    FIRST,
    SECOND,
    TRACES,
    commit,
    patched,
    photograph,
    read,
    revert,
    write,
)


@pytest.mark.parametrize("state", [FileState.EDITED, FileState.MISSING])
@pytest.mark.parametrize("path", [FIRST, TRACES])
def test_a_change_by_others_is_kept_unless_forced(
    path: str, state: FileState, install: Install
) -> None:
    before = photograph(install)
    commit(install, path, SECOND)
    if state is FileState.MISSING:
        (install.package / path).unlink()
    else:
        write(install, path, patched(path) + b"# more\n")
    snapshot = transaction.inspect(install)
    assert snapshot.changed == (path,) and snapshot.files[path] is state
    assert not snapshot.applied and not snapshot.holds(["ours"], "one")

    changed = photograph(install)
    with pytest.raises(SourceConflict, match=rf"{path} in .*--force"):
        revert(install)
    found = "is missing" if state is FileState.MISSING else "was changed after"
    for paths in ((path, SECOND), (SECOND,)):
        with pytest.raises(SourceConflict, match=f"{path} {found}.*revert --force"):
            commit(install, *paths, edition="two")
    with pytest.raises(SourceConflict, match=f"{path} {found}"):
        Originals(install, snapshot).texts([path])
    assert photograph(install) == changed

    assert revert(install, force=True) == (SECOND, path)
    assert photograph(install) == before


def test_a_file_is_missing_if_its_folder_is_missing_or_a_file(
    install: Install,
) -> None:
    commit(install, SECOND)
    shutil.rmtree(install.package / "srt/deep")
    assert transaction.inspect(install).files == {SECOND: FileState.MISSING}
    (install.package / "srt/deep").touch()
    assert transaction.inspect(install).files == {SECOND: FileState.MISSING}
    assert list(patched_files(install.package)) == []


def test_a_file_equal_to_the_wheels_is_an_original(install: Install) -> None:
    commit(install, FIRST)
    write(install, FIRST, b"# another build of the same version\n")
    files = {f"sglang/{FIRST}": read(install, FIRST)}
    dist_info = write_dist_info(install.package.parent, "0.5.9", files)
    install = replace(install, dist_info=dist_info)
    assert transaction.inspect(install).files == {FIRST: FileState.ORIGINAL}
    assert revert(install) == ()
    assert read(install, FIRST).startswith(b"# another build")


def test_a_concurrent_change_is_noticed(install: Install) -> None:
    before = photograph(install)
    files = {path: patched(path) for path in ALL}
    with transaction.locked(install) as work:
        work.originals.texts(ALL)
        write(install, SECOND, b"new\n")
        with pytest.raises(SourceConflict, match=f"{SECOND} was changed by another"):
            work.commit(files, patches=["ours"], tool_version="one")
    after = photograph(install)
    assert after.pop(SECOND) != before.pop(SECOND)
    assert after == before
