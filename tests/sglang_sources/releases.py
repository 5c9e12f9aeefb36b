"""The files that patches change in every release, original and patched.

Landing modules are not sources, and all but one are the same in every release.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path

from agentcore_patches import apply, revert, status
from agentcore_patches.edits import RefuseDefinition, ScopedEdit
from agentcore_patches.patches import registry
from agentcore_patches.patches.paths import LANDED
from agentcore_patches.patches.releases import SUPPORTED_VERSIONS
from agentcore_patches.planning.plan import Plan, make_plan
from agentcore_patches.planning.selection import Selection
from agentcore_patches.results import ApplyResult, PatchState
from tests.helpers.planning import VERSION
from tests.helpers.wheels import wheel_files

# The patches change a post-release as its release.
FAMILIES = tuple(version for version in SUPPORTED_VERSIONS if ".post" not in version)

NAMES = registry.names()


def _differing() -> tuple[str, ...]:
    made = {
        version: {
            edit
            for name in NAMES
            for edit in registry.edits(name, version)
            if edit.file not in LANDED
        }
        for version in FAMILIES
    }
    left = set().union(*made.values()) - made[VERSION]
    chosen: list[str] = []
    while left:
        chosen.append(max(FAMILIES, key=lambda version: len(made[version] & left)))
        left -= made[chosen[-1]]
    return tuple(chosen)


# The fewest releases with every edit that the suite's own release lacks.
DIFFERING = _differing()


def changed_files(version: str, selection: tuple[str, ...] = NAMES) -> tuple[str, ...]:
    """Return the files of a release that patches change, without created ones."""
    files = registry.files(selection, version)
    return tuple(path for path in files if path not in LANDED)


def scopes(version: str, file: str) -> set[str]:
    """Return the definitions of a file that patches change or check."""
    return {
        edit.scope
        for name in NAMES
        for edit in registry.edits(name, version)
        if edit.file == file
        and isinstance(edit, ScopedEdit)
        and not isinstance(edit, RefuseDefinition)
    }


def hooks(files: Mapping[str, bytes]) -> Mapping[str, bytes]:
    """Return files without the landing modules."""
    return {path: text for path, text in files.items() if path not in LANDED}


@cache
def sources(version: str) -> Mapping[str, bytes]:
    return wheel_files(version, registry.files(NAMES, version))


@cache
def patched(version: str, selection: tuple[str, ...] = NAMES) -> Mapping[str, bytes]:
    plan = planned(sources(version), version, selection)
    return {**sources(version), **plan.files}


def read(version: str, path: str) -> bytes | None:
    """Return any file of a release; None if it has no such file."""
    return wheel_files(version, [path]).get(path)


def planned(
    files: Mapping[str, bytes], version: str, selection: tuple[str, ...] = NAMES
) -> Plan:
    return make_plan(files, Selection(selection, version), partial(read, version))


def assert_applied_and_reverted(
    package: Path, version: str, unlisted: bool = False
) -> ApplyResult:
    """Apply all patches to an install of a release, compare its files, and revert."""
    files = changed_files(version)
    before = {path: (package / path).read_bytes() for path in files}
    done = apply(sglang_dir=package, extras=["all"], unlisted=unlisted)
    landed = patched(version)
    assert {path: (package / path).read_bytes() for path in landed} == landed
    assert status(sglang_dir=package).state is PatchState.IN_PLACE
    assert not apply(sglang_dir=package, unlisted=unlisted).changed
    revert(sglang_dir=package)
    assert {path: (package / path).read_bytes() for path in files} == before
    return done
