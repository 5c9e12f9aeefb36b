"""SGLang was upgraded, downgraded, reinstalled or checked out over a patched tree."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from agentcore_patches.api import apply, revert, status
from agentcore_patches.disk.filesystem import FOLDER
from agentcore_patches.edits import Edit
from agentcore_patches.errors import SourceConflict, UnsupportedTarget
from agentcore_patches.patches import registry
from agentcore_patches.results import PatchState
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

    def has(version: str, path: str) -> bool:
        return (version, path) != ("0.5.23", SERVING)

    def edits(name: str, version: str) -> tuple[Edit, ...]:
        return tuple(edit for edit in EDITS[name] if has(version, edit.file))

    monkeypatch.setattr(registry, "edits", edits)
    monkeypatch.setattr(registry, "is_file_of", has)
    return package


either_revert = pytest.mark.parametrize("force", [False, True])
MOVES = [
    ("0.5.9", "0.5.23", OTHER),
    ("0.5.23", "0.5.9", OTHER),
    ("0.5.9", "0.5.23", WITHOUT_SERVING),
    ("0.5.12", "0.5.13", OTHER),
]


@pytest.mark.parametrize(("old", "new", "files"), MOVES)
def test_a_new_release_is_patched_again_or_left_by_revert(
    old: str, new: str, files: dict[str, bytes], run: Run, without_serving: Path
) -> None:
    package = without_serving
    clause = f"SGLang changed from {old} to {new}"
    for force in (False, True):
        pip(package, old, SOURCES)
        apply(sglang_dir=package)
        clean = pip(package, new, files)
        result = revert(sglang_dir=package, force=force)
        assert not result.changed and result.sglang_change == clause
        assert contents(package) == clean

    pip(package, old, SOURCES)
    apply(sglang_dir=package)
    clean = pip(package, new, files)
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


@either_revert
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
    if SERVING in files:
        result = apply(sglang_dir=package)
        assert result.changed and result.sglang_change
        revert(sglang_dir=package)
        assert contents(package) == clean
        apply(sglang_dir=package)
        check_out(package, files)
    revert(sglang_dir=package, force=force)

    assert contents(package) == clean


@either_revert
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


@either_revert
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
@pytest.mark.parametrize("change", ["none", "anew", "edited", "removed"])
def test_files_created_for_the_old_release_are_removed(
    change: str, package: Path
) -> None:
    apply(sglang_dir=package)
    clean = pip(package, "0.5.23", OTHER)
    assert (package / TRACES).exists()
    if change == "anew":
        assert apply(sglang_dir=package).changed
        assert status(sglang_dir=package).complete
    elif change == "edited":
        (package / TRACES).write_text("TRACES = 2\n")
        with pytest.raises(SourceConflict, match="--force"):
            revert(sglang_dir=package)
    elif change == "removed":
        (package / TRACES).unlink()

    result = revert(sglang_dir=package, force=change == "edited")

    if change in ("none", "anew"):
        assert result.changed and TRACES in {file.path for file in result.files}
        assert not (package / TRACES).parent.exists()
    assert contents(package) == clean


def forget_version(package: Path) -> None:
    (package / "version.py").unlink()
    for metadata in package.parent.glob("*.dist-info"):
        shutil.rmtree(metadata)


def become_newer(package: Path) -> None:
    (package / "version.py").write_text('__version__ = "0.6.1"\n')


@either_revert
@pytest.mark.parametrize("change", [forget_version, become_newer])
def test_patches_can_be_reverted_on_an_unsupported_sglang(
    change: Callable[[Path], None], force: bool, run: Run, package: Path
) -> None:
    apply(sglang_dir=package)
    change(package)

    for command in (["apply"], ["apply", "--dry-run"]):
        assert run(*command).code == 3
    ran = run("status", "--check")
    assert ran.code == 1 and "is not supported" in ran.out
    assert "`agentcore-patch revert --sglang-dir" in ran.out
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


@pytest.mark.parametrize(
    ("version", "is_same"), [("0.5.23", False), ("0.5.9+own.2", True)]
)
def test_a_new_version_with_the_same_files_is_recorded(
    version: str, is_same: bool, package: Path
) -> None:
    """A local version label is the same release."""
    apply(sglang_dir=package)
    (package / "version.py").write_text(f'__version__ = "{version}"\n')
    assert status(sglang_dir=package).complete is is_same
    assert not (apply(sglang_dir=package).changed and is_same)
    assert status(sglang_dir=package).complete
