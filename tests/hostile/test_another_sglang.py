"""SGLang was upgraded, downgraded, reinstalled or checked out over a patched tree."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from agentcore_patches.api import apply, revert, status
from agentcore_patches.edits import Edit
from agentcore_patches.errors import SourceConflict, UnsupportedTarget
from agentcore_patches.patches import registry
from agentcore_patches.results import PatchState
from agentcore_patches.state.filesystem import FOLDER
from agentcore_patches.state.snapshot import FileState
from tests.helpers.trees import contents
from tests.unit.running import Run
from tests.unit.small_install import TRACES
from tests.unit.small_sglang import EDITS, MODELS, SERVING, SOURCES, build

# Another release: the same structure, other text; and one that lost a file.
OTHER = {
    path: text + b"# of another release\n" if path.startswith("srt/") else text
    for path, text in SOURCES.items()
}
WITHOUT_SERVING = {path: text for path, text in OTHER.items() if path != SERVING}


def pip(package: Path, version: str, files: dict[str, bytes]) -> dict[str, bytes]:
    """Act like pip: remove the old release's files, and write others.

    Returns the new files of the package, without agentcore-patch's own.
    """
    for path in SOURCES:
        (package / path).unlink(missing_ok=True)
    for metadata in package.parent.glob("*.dist-info"):
        shutil.rmtree(metadata)
    files = {**files, "version.py": f'__version__ = "{version}"\n'.encode()}
    build(package.parent, version, files)
    return files


def check_out(package: Path, files: dict[str, bytes]) -> dict[str, bytes]:
    """Act like `git checkout --force`, with an unchanged version."""
    for path in SOURCES:
        (package / path).unlink(missing_ok=True)
    for path, text in files.items():
        (package / path).write_bytes(text)
    return files


@pytest.fixture
def without_serving(package: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Patches, one of which changes a file that 0.5.23 no longer has."""

    def edits(name: str, version: str) -> tuple[Edit, ...]:
        found = EDITS[name]
        if version == "0.5.23":
            return tuple(edit for edit in found if edit.file != SERVING)
        return found

    monkeypatch.setattr(registry, "edits", edits)
    monkeypatch.setattr(
        registry,
        "is_file_of",
        lambda version, path: version != "0.5.23" or path != SERVING,
    )
    return package


MOVES = [
    ("0.5.9", "0.5.23", OTHER),
    ("0.5.23", "0.5.9", OTHER),
    ("0.5.9", "0.5.23", WITHOUT_SERVING),
    ("0.5.12", "0.5.13", OTHER),
]


@pytest.mark.parametrize(("old", "new", "files"), MOVES)
def test_a_new_release_is_patched_again_and_reverted_to_itself(
    old: str, new: str, files: dict[str, bytes], run: Run, without_serving: Path
) -> None:
    package = without_serving
    pip(package, old, SOURCES)
    apply(sglang_dir=package)
    clean = pip(package, new, files)
    clause = f"SGLang changed from {old} to {new}"

    found = status(sglang_dir=package)
    assert found.sglang_change == clause and not found.complete
    assert found.state is PatchState.ABSENT
    assert f"{clause} since the last apply." in run("status").out
    before = contents(package)
    planned = apply(sglang_dir=package, dry_run=True)
    assert planned.changed and planned.sglang_change == clause
    assert contents(package) == before

    ran = run("apply")

    assert ran.code == 0, ran.err
    assert f"{clause} since the last apply; patched again." in ran.out
    assert status(sglang_dir=package).complete
    assert status(sglang_dir=package).sglang_change is None
    revert(sglang_dir=package)
    assert contents(package) == clean


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize(("old", "new", "files"), MOVES)
def test_revert_leaves_a_newly_installed_release_unchanged(
    old: str, new: str, files: dict[str, bytes], force: bool, without_serving: Path
) -> None:
    package = without_serving
    pip(package, old, SOURCES)
    apply(sglang_dir=package)
    clean = pip(package, new, files)

    result = revert(sglang_dir=package, force=force)

    assert not result.changed
    assert result.sglang_change == f"SGLang changed from {old} to {new}"
    assert contents(package) == clean


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("files", [OTHER, WITHOUT_SERVING], ids=["other", "fewer"])
def test_revert_leaves_a_checkout_with_a_stale_version_unchanged(
    files: dict[str, bytes], force: bool, without_serving: Path
) -> None:
    package = without_serving
    apply(sglang_dir=package)
    clean = check_out(package, files)

    found = status(sglang_dir=package)
    assert found.sglang_change == "SGLang's files were replaced by others"
    states = {file.path: file.state for file in found.files}
    assert FileState.EDITED not in states.values()
    assert (states[SERVING] is FileState.MISSING) is (SERVING not in files)
    revert(sglang_dir=package, force=force)

    assert contents(package) == clean


def test_a_checkout_with_a_stale_version_is_patched_again(package: Path) -> None:
    apply(sglang_dir=package)
    clean = check_out(package, OTHER)

    result = apply(sglang_dir=package)

    assert result.changed and result.sglang_change
    revert(sglang_dir=package)
    assert contents(package) == clean


@pytest.mark.parametrize("force", [False, True])
def test_a_file_that_a_checkout_did_not_touch_is_restored(
    force: bool, package: Path
) -> None:
    """Git keeps changes in files that are equal in both commits."""
    apply(sglang_dir=package)
    (package / SERVING).write_bytes(OTHER[SERVING])

    restored = revert(sglang_dir=package, force=force).files

    assert [file.path for file in restored] == [MODELS]

    assert (package / MODELS).read_bytes() == SOURCES[MODELS]
    assert (package / SERVING).read_bytes() == OTHER[SERVING]
    assert not (package / FOLDER).exists()


@pytest.mark.parametrize("force", [False, True])
def test_an_original_never_overwrites_a_file_merged_with_another_release(
    force: bool, package: Path
) -> None:
    apply(sglang_dir=package)
    merged = (package / MODELS).read_bytes() + b"# of another release\n"
    check_out(package, OTHER)
    (package / MODELS).write_bytes(merged)
    before = contents(package)

    with pytest.raises(SourceConflict, match=r"models\.py .*git checkout"):
        revert(sglang_dir=package, force=force)
    with pytest.raises(SourceConflict, match=r"models\.py .*git checkout"):
        apply(sglang_dir=package)

    assert contents(package) == before


@pytest.mark.usefixtures("landing")
@pytest.mark.parametrize("anew", [False, True])
def test_files_created_for_the_old_release_are_removed(
    anew: bool, package: Path
) -> None:
    apply(sglang_dir=package)
    assert (package / TRACES).exists()
    clean = pip(package, "0.5.23", OTHER)
    assert (package / TRACES).exists()

    if anew:
        assert apply(sglang_dir=package).changed
        assert status(sglang_dir=package).complete
    result = revert(sglang_dir=package)

    assert result.changed and TRACES in {file.path for file in result.files}
    assert contents(package) == clean
    assert not (package / TRACES).parent.exists()


@pytest.mark.usefixtures("landing")
@pytest.mark.parametrize("change", ["edited", "removed"])
def test_edited_or_deleted_created_files_do_not_block_revert(
    change: str, package: Path
) -> None:
    apply(sglang_dir=package)
    clean = pip(package, "0.5.23", OTHER)
    if change == "edited":
        (package / TRACES).write_text("TRACES = 2\n")
        with pytest.raises(SourceConflict, match="--force"):
            revert(sglang_dir=package)
    else:
        (package / TRACES).unlink()
    revert(sglang_dir=package, force=change == "edited")
    assert contents(package) == clean


def forget_version(package: Path) -> None:
    (package / "version.py").unlink()
    for metadata in package.parent.glob("*.dist-info"):
        shutil.rmtree(metadata)


def become_newer(package: Path) -> None:
    (package / "version.py").write_text('__version__ = "0.6.1"\n')


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("change", [forget_version, become_newer])
def test_patches_can_be_reverted_on_an_unsupported_sglang(
    change: Callable[[Path], None], force: bool, run: Run, package: Path
) -> None:
    apply(sglang_dir=package)
    change(package)

    for command in (["apply"], ["apply", "--dry-run"]):
        assert run(*command).code == 3
    told = run("status", "--check")
    assert told.code == 1 and "does not support SGLang" in told.out
    assert "`agentcore-patch revert --sglang-dir" in told.out
    assert run("status", "--json").document["sglang"]["release"] is None
    assert run("revert", *(["--force"] if force else [])).code == 0

    srt = {path: text for path, text in SOURCES.items() if path.startswith("srt/")}
    found = contents(package)
    assert {path: found[path] for path in srt} == srt
    assert not (package / FOLDER).exists()


def test_an_unpatched_unsupported_sglang_has_nothing_to_revert(
    run: Run, package: Path
) -> None:
    become_newer(package)
    assert run("status").code == run("revert").code == 0
    with pytest.raises(UnsupportedTarget, match=r"0\.6\.1"):
        apply(sglang_dir=package)


def test_a_new_version_with_the_same_patched_files_is_recorded(package: Path) -> None:
    apply(sglang_dir=package)
    (package / "version.py").write_text('__version__ = "0.5.23"\n')
    assert not status(sglang_dir=package).complete
    apply(sglang_dir=package)
    assert status(sglang_dir=package).complete


def test_a_local_version_label_is_the_same_release(package: Path) -> None:
    apply(sglang_dir=package)
    (package / "version.py").write_text('__version__ = "0.5.9+own.2"\n')
    assert status(sglang_dir=package).complete
    assert not apply(sglang_dir=package).changed
