"""`apply`, `revert` and `apply_patch` as Python functions, on a small SGLang."""

from __future__ import annotations

import logging
import shutil
import sys
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import pytest

import agentcore_patches
from agentcore_patches import edits
from agentcore_patches.api import apply, apply_patch, revert, status
from agentcore_patches.installs.install import find
from agentcore_patches.results import PatchState
from agentcore_patches.state import ownership, transaction
from agentcore_patches.state.filesystem import FOLDER
from agentcore_patches.state.snapshot import FileState
from tests.helpers.trees import contents
from tests.unit.small_sglang import ENGINE, MODELS, SERVING, SOURCES


def test_every_comment_of_a_patch_starts_the_same_way() -> None:
    assert f"# {edits.OWNER}: ".encode() == ownership.COMMENT_START


def test_the_version_equals_the_distributions() -> None:
    assert agentcore_patches.__version__ == version("agentcore-patches")


def test_apply_installs_the_core_and_reports_it(package: Path) -> None:
    result = apply(sglang_dir=package)

    assert result.changed and result.recorded and not result.dry_run
    assert result.install.package == package
    assert result.patches == ("core",)
    assert [(f.path, f.applied, f.present, f.action) for f in result.files] == [
        (MODELS, 1, 0, "patched"),
        (SERVING, 1, 0, "patched"),
    ]
    assert [(edit.patch, edit.outcome) for edit in result.edits] == [
        ("core", "applied"),
        ("core", "applied"),
    ]
    assert all(file.pristine for file in result.files)
    assert b"ids: list = None" in (package / MODELS).read_bytes()
    assert b"text.ids = model.ids" in (package / SERVING).read_bytes()


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


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (("tito",), ("core",)),
        (("beta", "tito", "token-ids"), ("core", "beta")),
    ],
)
def test_an_install_of_patches_by_name_gets_the_core_and_keeps_its_extras(
    package: Path, before: tuple[str, ...], after: tuple[str, ...]
) -> None:
    with transaction.locked(find(package)) as work:
        work.commit(
            {MODELS: SOURCES[MODELS] + b"# agentcore-patch: old\n"},
            patches=before,
            tool_version="0.2.0+abc",
        )
    assert (status(sglang_dir=package).state, status(sglang_dir=package).patches) == (
        PatchState.OUTDATED,
        after,
    )
    result = apply(sglang_dir=package)
    assert (result.patches, result.removed) == (after, ())
    assert status(sglang_dir=package).complete
    revert(sglang_dir=package)
    assert contents(package) == SOURCES


def test_the_diff_keeps_line_ends_and_a_missing_last_one(package: Path) -> None:
    source = b"def answer(model):\r\n    text = model()\r\n    return text"
    (package / SERVING).write_bytes(source)

    diff = apply(sglang_dir=package, diff=True).files[1].diff

    assert " def answer(model):\r\n     text = model()\r\n" in diff
    assert diff.endswith("\n\\ No newline at end of file\n")


def test_there_is_no_diff_by_default(package: Path) -> None:
    assert [file.diff for file in apply(sglang_dir=package).files] == ["", ""]


def test_changes_by_others_are_kept_and_reported(package: Path) -> None:
    forked = SOURCES[SERVING] + b"\n\ndef theirs(): ...\n"
    (package / SERVING).write_bytes(forked)

    result = apply(sglang_dir=package)

    assert [file.pristine for file in result.files] == [True, False]
    assert b"def theirs(): ..." in (package / SERVING).read_bytes()
    reverted = revert(sglang_dir=package)
    assert (package / SERVING).read_bytes() == forked
    assert [(file.state, file.pristine) for file in reverted.files] == [
        (FileState.ORIGINAL, False),
        (FileState.ORIGINAL, True),
    ]


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
        (
            SERVING,
            "def reply(model): ...\n",
            "SGLang was not patched: srt/serving.py: in `answer`",
        ),
        (
            "version.py",
            '__version__ = "0.6.1"\n',
            "Found no SGLang that can be patched: SGLang 0.6.1",
        ),
    ],
)
def test_apply_patch_logs_a_refusal(
    file: str,
    text: str,
    said: str,
    importable: Path,
    caplog: pytest.LogCaptureFixture,
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
