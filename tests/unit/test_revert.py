"""`revert`, and which install the commands are about."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentcore_patches.api import apply, revert, status
from agentcore_patches.errors import (
    AccessError,
    SourceConflict,
    UnsupportedTarget,
    UsageError,
)
from agentcore_patches.state.snapshot import FileState
from tests.helpers.trees import contents
from tests.unit.small_sglang import MODELS, SERVING, SOURCES

Command = Callable[..., Any]


def test_revert_gives_every_byte_back(package: Path) -> None:
    apply(sglang_dir=package)

    result = revert(sglang_dir=package)

    assert result.changed
    assert result.patches == ("alpha", "beta")
    assert {file.path: (file.state, file.pristine) for file in result.files} == {
        MODELS: (FileState.ORIGINAL, True),
        SERVING: (FileState.ORIGINAL, True),
    }
    assert contents(package) == SOURCES


def test_a_second_revert_finds_nothing_to_do(package: Path) -> None:
    result = revert(sglang_dir=package)

    assert not result.changed
    assert result.patches == ()
    assert result.files == ()
    assert contents(package) == SOURCES


def test_revert_keeps_an_edit_unless_forced(package: Path) -> None:
    apply(sglang_dir=package)
    (package / MODELS).write_bytes((package / MODELS).read_bytes() + b"# theirs\n")
    before = contents(package)

    with pytest.raises(SourceConflict, match="--force"):
        revert(sglang_dir=package)

    assert contents(package) == before
    assert revert(sglang_dir=package, force=True).changed
    assert contents(package) == SOURCES


def test_a_string_names_the_folder_as_well(package: Path) -> None:
    assert apply(sglang_dir=str(package)).changed


@pytest.mark.parametrize("command", [apply, status, revert])
def test_what_is_no_sglang_is_refused(tmp_path: Path, command: Command) -> None:
    with pytest.raises(UnsupportedTarget):
        command(sglang_dir=tmp_path)
    with pytest.raises(UsageError):
        command(sglang_dir=tmp_path, python="python")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_cannot_be_read_is_told(package: Path) -> None:
    (package / SERVING).chmod(0)

    with pytest.raises(AccessError, match=r"serving\.py"):
        status(sglang_dir=package)


def test_a_loop_of_links_is_told(package: Path) -> None:
    (package / SERVING).unlink()
    (package / SERVING).symlink_to("serving.py")

    for command in (apply, status):
        with pytest.raises(AccessError, match=r"serving\.py"):
            command(sglang_dir=package)
