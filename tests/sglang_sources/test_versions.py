"""The patches fit the files of every supported release."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentcore_patches.installs import install
from agentcore_patches.patches import registry
from agentcore_patches.patches.releases import SUPPORTED_VERSIONS
from agentcore_patches.planning.selection import Selection
from tests.helpers.wheels import make_install
from tests.sglang_sources.releases import (
    FAMILIES,
    NAMES,
    assert_applied_and_reverted,
    changed_files,
    hooks,
    patched,
    planned,
    sources,
)

each_version = pytest.mark.parametrize("version", SUPPORTED_VERSIONS)

# The selections of a release are consecutive, because its parsed sources are cached.
each_selection = pytest.mark.parametrize(
    ("version", "selection"),
    [
        pytest.param(version, selection, id=f"{version}-{'+'.join(selection)}")
        for version in FAMILIES
        for selection in ((registry.CORE,), NAMES)
    ],
)


@each_version
def test_every_listed_file_of_a_release_changes(version: str) -> None:
    files = [
        path for path in registry.WRITING_ORDER if registry.is_file_of(version, path)
    ]
    assert tuple(files) == changed_files(version)


@each_selection
def test_patches_apply_completely_and_once(
    version: str, selection: tuple[str, ...]
) -> None:
    plan = planned(sources(version), version, selection)
    patches = Selection(selection, version).edits
    assert {patches[edit] for edit in plan.changed} == set(selection)
    assert all(plan.changed.values())
    assert tuple(plan.files) == registry.files(selection, version)
    for path, text in plan.files.items():
        compile(text, path, "exec", dont_inherit=True)
    assert all(b"# agentcore-patch: " in text for text in hooks(plan.files).values())
    again = planned(patched(version, selection), version, selection)
    assert again.files == {}
    assert not any(again.changed.values())


@each_selection
def test_new_lines_are_laid_out_like_their_neighbours(
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


@each_version
def test_the_command_patches_and_reverts_an_install(
    version: str, tmp_path: Path
) -> None:
    package = make_install(version, tmp_path / "site", changed_files(version))
    assert install.find(package).release == version
    assert_applied_and_reverted(package, version)
