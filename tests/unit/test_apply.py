"""`apply`, `status`, `revert` and `apply_patch` on a small SGLang."""

from __future__ import annotations

import logging
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

from agentcore_patches import api, edits
from agentcore_patches.api import apply, apply_patch, revert, status
from agentcore_patches.disk.filesystem import FOLDER
from agentcore_patches.installs.install import find
from agentcore_patches.results import PatchState
from agentcore_patches.state import ownership, transaction
from tests.helpers.trees import contents, photograph
from tests.unit.running import Run
from tests.unit.small_sglang import ENGINE, MODELS, SERVING, SOURCES, kill_apply


def test_every_comment_of_a_patch_starts_the_same_way() -> None:
    assert f"# {edits.OWNER}: ".encode() == ownership.COMMENT_START


def test_an_extra_is_added_kept_and_removed(package: Path) -> None:
    assert apply(sglang_dir=package, extras=["beta"]).patches == ("core", "beta")
    assert not apply(sglang_dir=package).changed
    before = contents(package)

    planned = apply(sglang_dir=package, without=["beta"], dry_run=True, diff=True)

    assert contents(package) == before
    result = apply(sglang_dir=package, without=["all"], diff=True)
    assert planned.files == result.files
    assert (result.patches, result.removed) == (("core",), ("beta",))
    assert {file.path: file.action for file in result.files} == {
        MODELS: "unchanged",
        SERVING: "unchanged",
        ENGINE: "restored",
    }
    assert (package / ENGINE).read_bytes() == SOURCES[ENGINE]
    assert apply(sglang_dir=package, extras=["all"]).patches == ("core", "beta")


def test_extras_without_a_record_are_found_in_the_sources(package: Path) -> None:
    apply(sglang_dir=package, extras="beta")
    shutil.rmtree(package / FOLDER)
    before = contents(package)
    assert apply(sglang_dir=package).patches == ("core", "beta")
    assert contents(package) == before


def test_an_install_of_patches_by_name_gets_the_core_and_keeps_its_extras(
    package: Path,
) -> None:
    with transaction.locked(find(package)) as work:
        work.commit(
            {MODELS: SOURCES[MODELS] + b"# agentcore-patch: old\n"},
            patches=("beta", "tito", "token-ids"),
            tool_version="0.2.0+abc",
        )
    found = status(sglang_dir=package)
    assert (found.state, found.patches) == (PatchState.OUTDATED, ("core", "beta"))
    result = apply(sglang_dir=package)
    assert (result.patches, result.removed) == (("core", "beta"), ())
    assert status(sglang_dir=package).complete
    revert(sglang_dir=package)
    assert contents(package) == SOURCES


def test_the_diff_keeps_line_ends_and_a_missing_last_one(package: Path) -> None:
    source = b"def answer(model):\r\n    text = model()\r\n    return text"
    (package / SERVING).write_bytes(source)

    diff = apply(sglang_dir=package, diff=True).files[1].diff

    assert " def answer(model):\r\n     text = model()\r\n" in diff
    assert diff.endswith("\n\\ No newline at end of file\n")


@pytest.fixture
def importable(package: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The package, importable in this interpreter."""
    monkeypatch.syspath_prepend(str(package.parent))
    (package / "__init__.py").touch()
    return package


def test_apply_patch_returns_whether_files_changed(
    importable: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "agentcore_patches")

    assert apply_patch() is True
    assert apply_patch() is False

    assert b"ids: list" in (importable / MODELS).read_bytes()
    where = f"SGLang 0.5.9 in {importable}"
    assert caplog.messages == [
        f"Patched {where}: core",
        f"Nothing to do, the patches are in place in {where}: core",
    ]


def test_apply_patch_warns_if_sglang_runs_here_already(
    importable: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "sglang.srt", ModuleType("sglang.srt"))

    assert apply_patch() is True

    assert "imported before it was patched" in caplog.text


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        (SERVING, "x = 1\n", "SGLang was not patched: srt/serving.py: in `answer`"),
        (
            "version.py",
            '__version__ = "0.6.1"\n',
            "Found no SGLang that can be patched",
        ),
    ],
)
def test_apply_patch_logs_a_refusal(
    importable: Path, caplog: pytest.LogCaptureFixture, file: str, text: str, said: str
) -> None:
    (importable / file).write_text(text)

    assert apply_patch() is False

    [record] = caplog.records
    assert record.levelno == logging.ERROR
    assert record.message.startswith(said)


def test_apply_patch_logs_a_bug_and_does_not_raise(
    importable: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(transaction, "inspect", lambda install: 1 / 0)

    assert apply_patch() is False

    [record] = caplog.records
    assert record.exc_info is not None and record.exc_info[0] is ZeroDivisionError


# Status


def test_the_rust_server_is_reported_if_it_would_be_used(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SGLANG_RUST_SERVER", "YES")
    run("apply")
    # 0.5.9 has no Rust server.
    assert "SGLANG_RUST_SERVER" not in run("status").out
    monkeypatch.setattr(api, "FIRST_WITH_RUST", "0.5.9")
    told = run("status").out
    assert "SGLANG_RUST_SERVER is set: it starts SGLang's Rust server" in told
    assert run("status", "--json").document["rust_server"] is True
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
