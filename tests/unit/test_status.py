"""`status`, and installs that were interrupted or lost their record."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentcore_patches import api
from agentcore_patches.api import apply, status
from agentcore_patches.errors import SourceConflict
from agentcore_patches.results import PatchState
from agentcore_patches.state.snapshot import FileState
from tests.helpers.trees import contents, photograph
from tests.unit.running import Run
from tests.unit.small_sglang import ENGINE, MODELS, SERVING, SOURCES, kill_apply

Command = Callable[..., Any]


@pytest.mark.parametrize("value", ["1", "true", "YES", "y"])
def test_the_rust_server_is_reported_if_it_would_be_used(
    run: Run, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("SGLANG_RUST_SERVER", value)
    run("apply")
    # 0.5.9 has no Rust server.
    assert "SGLANG_RUST_SERVER" not in run("status").out
    monkeypatch.setattr(api, "FIRST_WITH_RUST", "0.5.9")
    told = run("status").out
    assert "SGLANG_RUST_SERVER is set: it starts SGLang's Rust server" in told
    assert json.loads(run("status", "--json").out)["rust_server"] is True
    monkeypatch.setenv("SGLANG_RUST_SERVER", "0")
    assert "SGLANG_RUST_SERVER" not in run("status").out


@pytest.mark.parametrize("renaming", ["committed.json", "models.py"])
def test_status_and_dry_run_report_an_unfinished_apply_and_write_nothing(
    package: Path, renaming: str
) -> None:
    kill_apply(package, renaming)
    before = photograph(package)

    planned = apply(sglang_dir=package, dry_run=True)
    result = status(sglang_dir=package)

    assert planned.pending == result.pending == "an unfinished apply of core"
    assert planned.changed and planned.files == () and not result.complete
    assert photograph(package) == before
    apply(sglang_dir=package)
    assert status(sglang_dir=package).complete


def test_patches_without_a_record_count_as_in_place(package: Path) -> None:
    apply(sglang_dir=package)
    shutil.rmtree(package / ".agentcore-patch")
    before = contents(package)

    result = apply(sglang_dir=package)

    assert not result.changed and not result.recorded
    assert {file.present for file in result.files} == {1}
    assert contents(package) == before
    told = status(sglang_dir=package)
    assert told.complete and not told.recorded and told.applied_by is None
    states = {file.path: file.state for file in told.files}
    assert states == {
        MODELS: FileState.PATCHED,
        SERVING: FileState.PATCHED,
        ENGINE: FileState.ORIGINAL,
    }
    assert {file.pristine for file in result.files} == {None}
    assert [file.pristine for file in told.files] == [None, None, True]


def test_a_part_of_a_patch_without_a_record_is_not_in_place(package: Path) -> None:
    apply(sglang_dir=package)
    shutil.rmtree(package / ".agentcore-patch")
    (package / SERVING).write_bytes(SOURCES[SERVING])

    result = status(sglang_dir=package)

    assert (result.patches, result.state) == ((), PatchState.ABSENT)
    assert not result.recorded
    with pytest.raises(SourceConflict, match="only a part of it"):
        apply(sglang_dir=package)
