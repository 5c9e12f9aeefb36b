"""Installs in layers, of another user, with bytecode, and on shared caches."""

from __future__ import annotations

import errno
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentcore_patches.disk.filesystem import FOLDER
from agentcore_patches.errors import AccessError
from agentcore_patches.installs import install
from agentcore_patches.state import transaction
from tests.faults import tracing, trees
from tests.faults.trees import IO_STRUCT, MANAGER, PROTOCOL, SELECTIONS, install_of, run
from tests.helpers.trees import photograph
from tests.helpers.users import GROUP, USER, give_away, require_root


@contextmanager
def refused(root: Path, number: int) -> Iterator[None]:
    """Expect an AccessError that names an error, and an unchanged tree."""
    before = photograph(root)
    with pytest.raises(AccessError) as caught:
        yield
    assert os.strerror(number) in str(caught.value)
    assert "Nothing was changed." in str(caught.value)
    assert photograph(root) == before


def in_own_mounts(check: Callable[[Path], object], root: Path) -> None:
    """Call a function in a new mount namespace."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    apart = ["unshare", "--mount", *user]
    allowed = subprocess.run([*apart, "true"], capture_output=True, text=True)
    if allowed.returncode != 0:
        pytest.skip(f"mounting is not permitted here: {allowed.stderr}")
    code = f"import test_places as t; t.{check.__name__}(t.Path({str(root)!r}))"
    ended = subprocess.run(
        [*apart, sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        env=tracing.ENVIRONMENT,
    )
    assert ended.returncode == 0, ended.stderr


def mount(*options: str | Path) -> None:
    subprocess.run(["mount", *options], check=True)


def test_only_the_layer_over_an_image_changes(tmp_path: Path) -> None:
    in_own_mounts(mount_layers, tmp_path)


def mount_layers(root: Path) -> None:
    """Apply in a layer over a package, then in another layer over that one."""
    mount("-t", "tmpfs", "tmpfs", root)
    package = trees.build(root / "image")
    image = photograph(root / "image")
    layers = [root / "image"]
    for number in range(2):
        upper, work, merged = (root / f"{name}{number}" for name in ("up", "wk", "mg"))
        for folder in (upper, work, merged):
            folder.mkdir()
        lower = ":".join(map(str, reversed(layers)))
        options = f"lowerdir={lower},upperdir={upper},workdir={work}"
        mount("-t", "overlay", "-o", options, "overlay", merged)
        inside = merged / package.relative_to(root / "image")
        run(inside, ("apply", "upgrade")[number])
        assert transaction.inspect(install_of(inside)).applied
        assert trees.stale_bytecode(inside) == []
        layers.append(upper)
    run(inside, "revert")
    assert photograph(merged) == image
    assert photograph(root / "image") == image


# Users


@contextmanager
def another_user() -> Iterator[None]:
    require_root()
    os.setegid(GROUP)
    os.seteuid(USER)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A folder that other users may enter, too.

    It is not below pytest's folder, which each session closes to other users.
    """
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_another_user_can_run_status_but_not_apply(open_path: Path) -> None:
    package = trees.build(open_path)
    with refused(open_path, errno.EACCES), another_user():
        run(package, "apply")
    (package / IO_STRUCT).chmod(0o644)
    run(package, "apply")
    with another_user():
        assert transaction.inspect(install_of(package)).applied
    with refused(open_path, errno.EACCES), another_user():
        run(package, "revert")
    run(package, "revert")
    assert not (package / FOLDER).exists()


# Bytecode


def mark_that_runs(package: Path, path: str, *options: str) -> str:
    """Import the mark in a new interpreter, which may write bytecode; return it."""
    module = "sglang." + path.removesuffix(".py").replace("/", ".")
    ended = subprocess.run(
        [sys.executable, *options, "-c", f"import {module} as m; print(m.MARK)"],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(package.parent)},
    )
    return ended.stdout.split()[1]


@pytest.mark.parametrize("mode", ["timestamp", "checked-hash", "unchecked-hash"])
def test_no_interpreter_runs_stale_bytecode(mode: str, tmp_path: Path) -> None:
    package = trees.build(tmp_path)
    compiling = ["-m", "compileall", "-q", "-f", "--invalidation-mode", mode]
    for number in range(4):
        subprocess.run([sys.executable, *compiling, package], check=True)
        run(package, action := ("apply", "upgrade")[number % 2])
        for path in SELECTIONS[action]:
            assert mark_that_runs(package, path) == action
        assert mark_that_runs(package, PROTOCOL, "-O") == action
        subprocess.run([sys.executable, *compiling, package], check=True)
        if number != 2:
            run(package, "revert")
            for path in trees.SOURCES:
                assert mark_that_runs(package, path) == "vanilla"
            assert mark_that_runs(package, PROTOCOL, "-O") == "vanilla"


def test_unremovable_bytecode_that_would_run_is_refused(open_path: Path) -> None:
    package = trees.build(open_path)
    caches = (package / PROTOCOL).parent / "__pycache__"
    give_away(package)
    caches.chmod(0o555)
    with refused(open_path, errno.EACCES), another_user():
        run(package, "apply")


def test_unremovable_bytecode_that_would_not_run_is_left(open_path: Path) -> None:
    package = trees.build(open_path)
    caches = (package / PROTOCOL).parent / "__pycache__"
    Path(importlib.util.cache_from_source(str(package / PROTOCOL))).unlink()
    give_away(package)
    caches.chmod(0o555)
    first = photograph(open_path)
    with another_user():
        run(package, "apply")
        assert len(list(caches.iterdir())) == 2
        assert trees.stale_bytecode(package) == []
        run(package, "revert")
    assert trees.stale_bytecode(package) == []
    assert photograph(open_path) == first


# Links


def test_revert_replaces_a_dangling_link_with_the_file(tmp_path: Path) -> None:
    package = trees.build(tmp_path)
    run(package, "apply")
    shutil.rmtree(tmp_path / "cache")
    run(package, "revert")
    assert not (package / MANAGER).is_symlink()
    assert (package / MANAGER).read_bytes() == trees.text(MANAGER, "vanilla")


@pytest.mark.parametrize("mode", ["hardlink", "clone", "copy", "symlink"])
def test_other_environments_on_the_same_cache_stay_unchanged(
    mode: str, tmp_path: Path
) -> None:
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert uv, "This test needs uv (pip install uv)."
    wheel = trees.make_wheel(tmp_path)

    def environment(name: str) -> Path:
        options = ["--target", str(tmp_path / name)]
        options += ["--cache-dir", str(tmp_path / "cache")]
        options += ["--link-mode", mode, "--python", sys.executable]
        subprocess.run(
            [uv, "pip", "install", "--offline", "--no-deps", *options, wheel],
            check=True,
            capture_output=True,
        )
        return tmp_path / name / "sglang"

    one, other = environment("one"), environment("other")
    assert (one / PROTOCOL).is_symlink() == (mode == "symlink")
    # uv makes hard links where it cannot clone.
    shared = (one / PROTOCOL).stat().st_nlink > 1
    assert shared if mode == "hardlink" else not shared or mode != "copy"
    first = photograph(tmp_path)

    found = install.find(sglang_dir=one)
    assert found.wheel_hashes(trees.SOURCES).keys() == set(trees.SOURCES)
    run(one, "apply")
    changed = {
        name for name, seen in photograph(tmp_path).items() if seen != first.get(name)
    }
    assert {name for name in changed if FOLDER not in name} == {
        "one/sglang/srt/agentcore",
        f"one/{trees.DIST_INFO}/RECORD",
        *(f"one/sglang/{path}" for path in SELECTIONS["apply"]),
    }
    third = environment("third")
    assert trees.texts(third) == trees.texts(other)
    shutil.rmtree(third.parent)
    run(one, "revert")
    assert photograph(tmp_path) == first
