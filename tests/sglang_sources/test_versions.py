"""What the patches make of the files of every release that they have edits for."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest

from agentcore_patches import apply, install, revert, status
from agentcore_patches.diff import unified_diff
from agentcore_patches.edits import ScopedEdit
from agentcore_patches.errors import SourceConflict
from agentcore_patches.patches import registry, releases
from agentcore_patches.patches.releases import SUPPORTED_VERSIONS
from agentcore_patches.results import PatchState
from tests.helpers.planning import VERSION
from tests.helpers.wheels import make_install
from tests.sglang_sources import surgery
from tests.sglang_sources.releases import (
    FAMILIES,
    NAMES,
    changed_files,
    hooks,
    patched,
    planned,
    sources,
)

pytestmark = pytest.mark.usefixtures("planned_once")


def changed_lines(old: bytes, new: bytes) -> list[str]:
    """The lines of a diff with those around them, wherever in the file."""
    diff = unified_diff("", old, new).splitlines()
    return [line for line in diff if not line.startswith("@@")]


each_version = pytest.mark.parametrize("version", SUPPORTED_VERSIONS)
each_family = pytest.mark.parametrize("version", FAMILIES)

# Every selection for one release; each patch, and all of them, for the others. Those of
# a release one after the other: what is parsed of it is remembered.
each_selection = pytest.mark.parametrize(
    ("version", "selection"),
    [
        pytest.param(version, selection, id=f"{version}-{'+'.join(selection)}")
        for version in FAMILIES
        for size in range(1, len(NAMES) + 1)
        for selection in combinations(NAMES, size)
        if version == VERSION or size in (1, len(NAMES))
    ],
)


@each_version
def test_the_files_of_a_release_are_those_that_change(version: str) -> None:
    files = [
        path for path in registry.WRITING_ORDER if registry.is_file_of(version, path)
    ]
    assert tuple(files) == changed_files(version)


@each_version
def test_every_file_that_edits_change_is_there(version: str) -> None:
    assert set(sources(version)) == set(changed_files(version))


@each_version
def test_a_post_release_is_changed_as_its_release(version: str) -> None:
    release = version.partition(".post")[0]
    for path, text in hooks(patched(version)).items():
        assert changed_lines(sources(version)[path], text) == changed_lines(
            sources(release)[path], patched(release)[path]
        ), path


@each_selection
def test_patches_apply_whole_and_once(version: str, selection: tuple[str, ...]) -> None:
    if not registry.edits(selection[0], version):
        pytest.skip(f"{selection[0]} is not for {version}")
    plan = planned(sources(version), version, selection)
    assert {outcome.patch for outcome in plan.outcomes} == set(selection)
    assert {outcome.outcome for outcome in plan.outcomes} == {"applied"}
    assert tuple(plan.files) == registry.files(selection, version)
    for path, text in plan.files.items():
        compile(text, path, "exec", dont_inherit=True)
    assert all(b"# agentcore-patch: " in text for text in hooks(plan.files).values())
    again = planned(patched(version, selection), version, selection)
    assert again.files == {}
    assert {outcome.outcome for outcome in again.outcomes} == {"present"}


@each_selection
def test_new_lines_are_laid_out_as_those_around_them(
    version: str, selection: tuple[str, ...]
) -> None:
    for path, text in hooks(patched(version, selection)).items():
        source = sources(version)[path]
        old = set(source.decode().split("\n"))
        for line in text.decode().split("\n"):
            if line not in old:
                assert len(line) <= 88, line
                assert line == line.rstrip(), line
                assert line.isascii(), line
        assert text.endswith(b"\n") == source.endswith(b"\n")


@each_family
def test_definitions_and_comments_of_the_wheel_stay(version: str) -> None:
    for path, text in hooks(patched(version)).items():
        source = sources(version)[path]
        assert surgery.keeps_comments(source, text)
        there = iter(surgery.names_of_definitions(text))
        assert all(name in there for name in surgery.names_of_definitions(source))


@each_family
def test_no_name_of_another_release_lands(version: str) -> None:
    for by_release in releases.NAMES.values():
        for name in by_release.values():
            if name in ("", "self.", "finished"):
                continue
            for path, text in hooks(patched(version)).items():
                if text.count(name.encode()) > sources(version)[path].count(
                    name.encode()
                ):
                    assert name == releases.of_release(version, by_release), path


@each_family
def test_a_definition_that_a_fork_renamed_is_told(version: str) -> None:
    """The scope of the last edit of each file, renamed, is a conflict that names it."""
    for path in changed_files(version):
        edit = [
            edit
            for name in NAMES
            for edit in registry.edits(name, version)
            if edit.file == path and isinstance(edit, ScopedEdit)
        ][-1]
        source = sources(version)[path]
        node = surgery.definition(source, edit.scope)
        mutant = surgery.renamed(source, node)
        with pytest.raises(SourceConflict, match="Nothing was written") as refused:
            planned({**sources(version), path: mutant}, version)
        assert path in str(refused.value)
        assert f"sglang=={version}" in str(refused.value)


@pytest.mark.parametrize("version", SUPPORTED_VERSIONS)
def test_the_command_patches_an_install_and_puts_it_back(
    version: str, tmp_path: Path
) -> None:
    files = changed_files(version)
    package = make_install(version, tmp_path / "site", files)
    before = {path: (package / path).read_bytes() for path in files}
    found = install.find(package)
    assert found.release == version
    apply(sglang_dir=package)
    landed = patched(version)
    assert {path: (package / path).read_bytes() for path in landed} == landed
    states = status(sglang_dir=package).patches
    assert set(states.values()) == {PatchState.IN_PLACE}, states
    revert(sglang_dir=package)
    assert {path: (package / path).read_bytes() for path in files} == before


def test_a_version_that_is_not_listed_is_refused(tmp_path: Path) -> None:
    package = make_install("0.5.9", tmp_path / "site", changed_files("0.5.9"))
    for file in ("_version.py", "version.py"):
        if (package / file).exists():
            (package / file).write_text('__version__ = "0.5.7"\n')
    with pytest.raises(Exception, match=r"0\.5\.7 .* Supported: 0\.5\."):
        apply(sglang_dir=package)
