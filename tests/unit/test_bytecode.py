"""The bytecode files of changed sources."""

from __future__ import annotations

import importlib.util
import marshal
import os
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from agentcore_patches.disk.filesystem import digest
from agentcore_patches.installs.install import Install
from tests.unit.small_install import (
    ALL,
    FIRST,
    FOLDER,
    SECOND,
    commit,
    photograph,
    revert,
    vanilla,
)
from tests.unit.test_interrupted_transactions import acting_before, interrupt


def compile_unchecked(source: Path, text: bytes) -> Path:
    """Write a bytecode file that an interpreter runs without checking its source."""
    cache = Path(importlib.util.cache_from_source(str(source)))
    cache.parent.mkdir(exist_ok=True)
    code = marshal.dumps(compile(text, str(source), "exec"))
    cache.write_bytes(
        importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + bytes(8) + code
    )
    return cache


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
