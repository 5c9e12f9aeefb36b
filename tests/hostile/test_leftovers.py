"""Leftovers of an uninstalled patched SGLang: found, reported, and removed if safe."""

from __future__ import annotations

import shutil
import tempfile
import venv
from pathlib import Path

import pytest

from agentcore_patches.api import apply, revert, status
from agentcore_patches.command.text_output import TextOutput
from agentcore_patches.errors import AccessError, SourceConflict, UnsupportedTarget
from agentcore_patches.results import PatchState
from agentcore_patches.state.filesystem import FOLDER
from tests.helpers.trees import contents, photograph
from tests.helpers.users import give_away, require_root
from tests.unit.running import Run
from tests.unit.small_install import TRACES
from tests.unit.small_sglang import SOURCES, build, kill_apply

pytestmark = pytest.mark.usefixtures("landing")

FOREIGN = "srt/agentcore/notes.txt"

HOOK = """
import sys
from importlib.util import spec_from_file_location

class Finder:
    def find_spec(name, path=None, target=None):
        if name == "sglang":
            return spec_from_file_location(name, "{init}")

sys.meta_path.append(Finder)
"""
"""The finder of an editable install: Python asks it last."""


def uninstall(package: Path) -> Path:
    """Act like pip: remove the wheel's files, and folders that are then empty.

    It leaves one empty folder, as pip does where only folders are in a folder.
    """
    for path in [*SOURCES, "__init__.py"]:
        (package / path).unlink(missing_ok=True)
    for metadata in package.parent.glob("*.dist-info"):
        shutil.rmtree(metadata)
    (package / "srt/backend/kinds").mkdir(parents=True)
    return package


@pytest.fixture
def leftovers(package: Path) -> Path:
    """The folder that uninstalling leaves behind."""
    apply(sglang_dir=package)
    (package / "srt/agentcore/__pycache__").mkdir()
    (package / "srt/agentcore/__pycache__/traces.cpython-311.pyc").write_bytes(b"old")
    return uninstall(package)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The checkout of an editable install."""
    made = build(tmp_path / "checkout/python")
    (made / "__init__.py").touch()
    shutil.rmtree(next(made.parent.glob("*.dist-info")))
    return made


def python(folder: Path, *entries: Path, editable: Path | None = None) -> Path:
    """Make an environment with these search paths and an editable install."""
    venv.create(folder / "env", with_pip=False, symlinks=True)
    [site] = folder.glob("env/lib/python3*/site-packages")
    (site / "entries.pth").write_text("\n".join(map(str, entries)))
    if editable:
        (site / "hook.py").write_text(HOOK.format(init=editable / "__init__.py"))
        (site / "hook.pth").write_text("import hook\n")
    return folder / "env/bin/python"


def test_a_checkout_hidden_by_leftovers_is_patched_and_importable(
    leftovers: Path, checkout: Path, tmp_path: Path
) -> None:
    exe = python(tmp_path, leftovers.parent, editable=checkout)
    before = photograph(tmp_path)

    told = status(python=exe)
    [entry] = told.install.leftovers
    assert (entry.folder, entry.hides) == (leftovers, True)
    assert (entry.kept, entry.problem) == ((), None)
    assert told.install.package == checkout
    planned = apply(python=exe, dry_run=True)
    assert planned.changed and revert(python=exe, dry_run=True).install.leftovers
    assert photograph(tmp_path) == before

    result = apply(python=exe)

    assert result.changed and result.install.package == checkout
    assert not leftovers.exists() and leftovers.parent.exists()
    found = status(python=exe)
    assert found.complete and found.install.leftovers == ()
    revert(python=exe)
    assert contents(checkout) == {**SOURCES, "__init__.py": b""}


def test_a_patched_checkout_hidden_by_leftovers_is_not_complete(
    leftovers: Path, checkout: Path, tmp_path: Path
) -> None:
    exe = python(tmp_path, leftovers.parent, editable=checkout)
    apply(sglang_dir=checkout)

    told = status(python=exe)
    assert set(told.patches.values()) == {PatchState.IN_PLACE} and not told.complete
    assert not apply(python=exe).changed

    assert not leftovers.exists() and status(python=exe).complete


def test_revert_removes_leftovers_and_restores_what_they_hide(
    leftovers: Path, checkout: Path, tmp_path: Path
) -> None:
    exe = python(tmp_path, leftovers.parent, editable=checkout)
    apply(sglang_dir=checkout)

    assert revert(python=exe).changed

    assert not leftovers.exists()
    assert contents(checkout) == {**SOURCES, "__init__.py": b""}


def test_leftovers_that_hide_nothing_are_removed_too(
    leftovers: Path, tmp_path: Path
) -> None:
    """An SGLang in any other entry of the path takes precedence, even a later one."""
    real = build(tmp_path / "other")
    (real / "__init__.py").touch()
    exe = python(tmp_path, leftovers.parent, real.parent)

    [entry] = status(python=exe).install.leftovers
    assert not entry.hides
    assert apply(python=exe).install.package == real
    assert not leftovers.exists() and status(python=exe).complete


def test_without_sglang_only_revert_works(
    leftovers: Path, tmp_path: Path, run: Run
) -> None:
    exe = python(tmp_path, leftovers.parent)
    before = photograph(leftovers)
    for folder, named in ((None, exe), (leftovers, None)):
        with pytest.raises(UnsupportedTarget, match="`agentcore-patch revert`"):
            apply(sglang_dir=folder, python=named)
        with pytest.raises(UnsupportedTarget, match="`agentcore-patch revert`"):
            status(sglang_dir=folder, python=named)
        planned = revert(sglang_dir=folder, python=named, dry_run=True)
        assert planned.install.leftovers[0].folder == leftovers
    assert photograph(leftovers) == before

    ran = run("revert")

    assert ran.code == 0 and f"Removed {leftovers}" in ran.out
    assert not leftovers.exists()


def test_the_command_reports_what_it_found_and_removed(
    leftovers: Path, checkout: Path, tmp_path: Path
) -> None:
    exe = python(tmp_path, leftovers.parent, editable=checkout)
    output = TextOutput()
    told = output.status(status(python=exe))
    assert f"{leftovers} holds only files that agentcore-patch had added" in told
    assert f"imports it in place of the SGLang in {checkout}" in told
    assert "`agentcore-patch apply` or `agentcore-patch revert` removes it" in told
    assert f"Would remove {leftovers}" in output.applied(
        apply(python=exe, dry_run=True)
    )
    done = output.applied(apply(python=exe))
    assert f"Removed {leftovers}" in done and "Patched SGLang 0.5.9" in done


@pytest.mark.parametrize(
    "path", [FOREIGN, "srt/mine/own.py", "README", f"{FOLDER}/x/y"]
)
def test_files_of_other_programs_stay(
    path: str, leftovers: Path, checkout: Path, tmp_path: Path
) -> None:
    exe = python(tmp_path, leftovers.parent, editable=checkout)
    (leftovers / path).parent.mkdir(exist_ok=True)
    (leftovers / path).write_text("mine")
    before = photograph(tmp_path)

    with pytest.raises(SourceConflict, match=f"holds {path}"):
        apply(python=exe)
    assert status(python=exe).install.leftovers[0].kept == (path,)
    assert photograph(tmp_path) == before

    [entry] = revert(python=exe).install.leftovers

    assert entry.kept == (path,)
    assert contents(leftovers) == {path: b"mine"}


def test_an_edited_landed_module_is_removed_only_by_force(
    leftovers: Path, checkout: Path, tmp_path: Path
) -> None:
    exe = python(tmp_path, leftovers.parent, editable=checkout)
    (leftovers / TRACES).write_text("TRACES = 'mine'\n")
    before = photograph(tmp_path)

    for call in (apply, revert):
        with pytest.raises(SourceConflict, match=f"{TRACES} .*--force"):
            call(python=exe)
    assert "--force" in (status(python=exe).install.leftovers[0].problem or "")
    assert photograph(tmp_path) == before

    revert(python=exe, force=True)
    assert not leftovers.exists()


def test_without_a_record_no_leftover_is_removed(
    leftovers: Path, checkout: Path, tmp_path: Path
) -> None:
    exe = python(tmp_path, leftovers.parent, editable=checkout)
    shutil.rmtree(leftovers / FOLDER)

    with pytest.raises(SourceConflict, match=TRACES):
        apply(python=exe)
    revert(python=exe)

    assert (leftovers / TRACES).exists()


def test_a_link_to_leftovers_is_not_followed(
    leftovers: Path, checkout: Path, tmp_path: Path
) -> None:
    site = tmp_path / "linked"
    site.mkdir()
    (site / "sglang").symlink_to(leftovers)
    exe = python(tmp_path, site, editable=checkout)
    before = photograph(tmp_path)

    for call in (apply, status, revert):
        with pytest.raises(UnsupportedTarget, match=r"linked/sglang.*hides the one in"):
            call(python=exe)

    assert photograph(tmp_path) == before


@pytest.mark.parametrize("inner", ["srt", "srt/agentcore"])
def test_a_link_inside_leftovers_is_not_followed(
    inner: str, leftovers: Path, checkout: Path, tmp_path: Path
) -> None:
    exe = python(tmp_path, leftovers.parent, editable=checkout)
    (leftovers / inner).rename(tmp_path / "moved")
    (leftovers / inner).symlink_to(tmp_path / "moved")
    before = photograph(tmp_path)

    with pytest.raises((AccessError, SourceConflict), match=r"agentcore|srt"):
        apply(python=exe)

    assert photograph(tmp_path) == before


def test_an_unrelated_folder_is_left_alone_and_named(
    checkout: Path, tmp_path: Path
) -> None:
    stray = tmp_path / "stray/sglang"
    stray.mkdir(parents=True)
    exe = python(tmp_path, stray.parent, editable=checkout)
    with pytest.raises(UnsupportedTarget, match=f"{stray}, which holds no SGLang"):
        apply(python=exe)
    assert stray.exists()


def test_a_new_release_installed_over_leftovers_is_patched(leftovers: Path) -> None:
    package = build(leftovers.parent)
    assert apply(sglang_dir=package).changed
    assert status(sglang_dir=package).complete
    revert(sglang_dir=package)
    assert contents(package) == SOURCES


@pytest.mark.parametrize("hides", [True, False])
def test_leftovers_in_a_read_only_folder(
    hides: bool, leftovers: Path, checkout: Path, tmp_path: Path
) -> None:
    require_root()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        site = Path(shutil.move(leftovers.parent, Path(folder) / "site"))
        leftovers = site / "sglang"
        give_away(site)
        site.chmod(0o555)
        before = photograph(leftovers)
        exe = (
            python(tmp_path, site, editable=checkout)
            if hides
            else python(tmp_path, site, checkout.parent)
        )

        [told] = status(python=exe).install.leftovers
        assert told.hides is hides
        assert f"{site} cannot be written to" in str(told.problem)
        if hides:
            for call in (apply, revert):
                with pytest.raises(AccessError, match="cannot be written to"):
                    call(python=exe)
            assert contents(checkout) == {**SOURCES, "__init__.py": b""}
            assert photograph(leftovers) == before
        else:
            [entry] = apply(python=exe).install.leftovers
            assert entry.problem and status(python=exe).complete

        site.chmod(0o755)
        assert not apply(python=exe).install.leftovers[0].problem
        assert not leftovers.exists() and status(python=exe).complete


def test_an_interrupted_command_is_finished_first(
    package: Path, checkout: Path, tmp_path: Path
) -> None:
    kill_apply(package, "state.json")
    leftovers = uninstall(package)
    exe = python(tmp_path, leftovers.parent, editable=checkout)

    apply(python=exe)

    assert not leftovers.exists() and status(python=exe).complete
