"""Accidents that happen to an install between two commands."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from agentcore_patches.api import apply, revert, status
from agentcore_patches.disk.filesystem import FOLDER
from agentcore_patches.errors import AccessError, AgentcoreError, SourceConflict
from agentcore_patches.installs.install import Install
from agentcore_patches.patches.paths import LANDING
from agentcore_patches.state import transaction
from agentcore_patches.state.lock import Lock
from tests.helpers.trees import contents, photograph
from tests.helpers.users import GROUP, USER, give_away, require_root
from tests.hostile.planting import Planted
from tests.unit.small_sglang import MODELS, SERVING, SOURCES


def test_originals_stay_while_anything_is_patched(package: Path) -> None:
    apply(sglang_dir=package)
    folder = package / FOLDER
    record = (folder / "state.json").read_bytes()
    stored = contents(folder / "store")
    assert len(stored) == 4
    (folder / "state.json").unlink()

    found = status(sglang_dir=package)
    assert not found.recorded and found.pending is None
    assert not apply(sglang_dir=package).changed
    with pytest.raises(SourceConflict, match=r"has no state\.json"):
        revert(sglang_dir=package)

    assert contents(folder / "store") == stored
    (folder / "state.json").write_bytes(record)
    revert(sglang_dir=package)
    assert contents(package) == SOURCES


@pytest.mark.parametrize("linked", [False, True])
def test_a_landed_module_without_a_record_is_reported_unless_linked(
    linked: bool, package: Path, tmp_path: Path
) -> None:
    landing = package / LANDING
    place = tmp_path / "elsewhere" if linked else landing
    place.mkdir()
    (place / "of_an_older_version.py").touch()
    if linked:
        landing.symlink_to(place)
        assert not revert(sglang_dir=package).changed
        return
    with pytest.raises(SourceConflict, match=rf"then remove {landing}\.") as refused:
        revert(sglang_dir=package)
    assert any("version.py" in name for name in refused.value.details)


def in_a_child_of(user: int, group: int, work: str) -> None:
    """Run Python code as another user, in a child process."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setgroups([])
            os.setgid(group)
            os.setuid(user)
            exec(work, globals())
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_new_owner_of_everything_can_revert(planted: Planted) -> None:
    for place in (planted.package, *planted.package.rglob("*")):
        os.chown(place, 0, 0)
    first = contents(planted.package)
    apply(sglang_dir=planted.package)
    give_away(planted.package)

    in_a_child_of(USER, GROUP, f"revert(sglang_dir={str(planted.package)!r})")

    assert contents(planted.package) == first
    assert {p.stat().st_uid for p in planted.package.rglob("*")} == {USER}


@pytest.mark.usefixtures("landing")
def test_the_owner_of_a_tree_needs_no_root(planted: Planted) -> None:
    os.chown(planted.package, USER, 0)  # The user is not in this group.
    first = photograph(planted.package)
    target = f"sglang_dir={str(planted.package)!r}"
    in_a_child_of(USER, GROUP, f"assert apply({target}).changed")
    in_a_child_of(USER, GROUP, f"assert revert({target}).changed")
    assert photograph(planted.package) == first


def test_an_original_is_as_private_as_its_source(package: Path) -> None:
    (package / MODELS).chmod(0o700)
    apply(sglang_dir=package)

    modes = {
        stat.S_IMODE(file.stat().st_mode)
        for file in (package / FOLDER / "store").iterdir()
        if b"class Answer" in file.read_bytes()
    }
    assert modes == {0o600}
    # A mode that was changed after `apply` is kept.
    for mode in (0o700, 0o640):
        apply(sglang_dir=package)
        (package / MODELS).chmod(mode)
        revert(sglang_dir=package)
        assert stat.S_IMODE((package / MODELS).stat().st_mode) == mode
    assert (package / MODELS).read_bytes() == SOURCES[MODELS]


def test_the_state_folder_has_the_packages_group_and_is_not_world_writable(
    package: Path,
) -> None:
    require_root()
    os.chown(package, 0, GROUP)
    package.chmod(0o777)
    apply(sglang_dir=package)
    found = (package / FOLDER).stat()
    assert (stat.S_IMODE(found.st_mode), found.st_gid) == (0o775, GROUP)


def test_a_file_of_another_user_keeps_its_owner(package: Path) -> None:
    give_away(package / MODELS)
    for command in (apply, revert):
        assert command(sglang_dir=package).changed
        found = (package / MODELS).stat()
        assert (found.st_uid, found.st_gid) == (USER, GROUP)


@pytest.mark.parametrize("stale", [None, "fcntl.flock", "os.fstat"])
def test_a_lock_file_removed_after_opening_is_created_again(
    stale: str | None, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last holder removes the state folder at the end, maybe on another machine."""
    take = Lock._take

    def take_removed(lock: Lock, descriptor: int) -> str | None:
        monkeypatch.setattr(Lock, "_take", take)
        shutil.rmtree(lock.file.parent)
        with monkeypatch.context() as elsewhere:
            if stale:
                error = OSError(errno.ESTALE, os.strerror(errno.ESTALE))
                elsewhere.setattr(stale, mock.Mock(side_effect=error))
            return take(lock, descriptor)

    monkeypatch.setattr(Lock, "_take", take_removed)
    notices: list[str] = []
    with transaction.locked(install, notify=notices.append):
        assert (install.package / FOLDER / "lock").exists()
    assert "(just ended)" in notices[0]


def test_the_text_of_a_lock_file_is_escaped(install: Install) -> None:
    with transaction.locked(install):
        lock = install.package / FOLDER / "lock"
        for text in (b"\x1b[31mred", b"\xff", b"process 1\x1b[31m", b"x" * 100_000):
            lock.write_bytes(text)
            with (
                pytest.raises(AccessError, match=r"agentcore-patch \(just started\)"),
                transaction.locked(install, timeout=0),
            ):
                pass


def test_a_dry_run_makes_the_same_checks_as_a_real_run(package: Path) -> None:
    apply(sglang_dir=package)
    (package / SERVING).write_bytes((package / SERVING).read_bytes() + b"# more\n")
    commands: list[tuple[Callable[..., Any], dict[str, Any]]]
    commands = [(apply, {"extras": ["beta"]}), (revert, {})]
    for command, options in commands:
        messages = set()
        for dry_run in (True, False):
            with pytest.raises(AgentcoreError, match="revert --force`") as caught:
                command(sglang_dir=package, dry_run=dry_run, **options)
            messages.add(str(caught.value))
        assert len(messages) == 1
    assert revert(sglang_dir=package, dry_run=True, force=True).changed
