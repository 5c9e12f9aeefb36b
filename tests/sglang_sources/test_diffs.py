"""The changes of all patches in the files of each release, kept as readable diffs.

The diffs have hunks only; landing modules are in `agentcore_patches/landing`. The file
of a release with the same hunks as the release before has one line that says so. To
write the diffs again after an intended change:

    AGENTCORE_WRITE_DIFFS=1 pytest -m "" tests/sglang_sources/test_diffs.py
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from agentcore_patches.edits import (
    AddCondition,
    AddKeyword,
    Insert,
    Replace,
)
from agentcore_patches.patches import registry
from tests.sglang_sources import surgery
from tests.sglang_sources.hunks import Hunk, hunks, written
from tests.sglang_sources.releases import FAMILIES, NAMES, hooks, patched, sources

EXPECTED = Path(__file__).parent / "expected"
WRITE = "AGENTCORE_WRITE_DIFFS"


@cache
def hunks_of(version: str) -> list[Hunk]:
    return hunks(sources(version), patched(version))


@pytest.mark.parametrize("version", FAMILIES)
def test_the_patches_change_exactly_the_recorded_diff(version: str) -> None:
    earlier = FAMILIES[: FAMILIES.index(version)]
    before = earlier[-1] if earlier else ""
    text = written(
        version, hunks_of(version), before, hunks_of(before) if before else []
    )
    file = EXPECTED / f"{version}.diff"
    if os.environ.get(WRITE):
        file.write_text(text)
    if not file.exists() or file.read_text() != text:
        pytest.fail(
            f"The hunks of SGLang {version} are not those of {file.name}. If they have "
            f"changed on purpose: {WRITE}=1 pytest -m '' {Path(__file__).name}, then read "
            "`git diff`.",
            pytrace=False,
        )


def test_every_diff_belongs_to_a_release() -> None:
    assert {file.stem for file in EXPECTED.iterdir()} == set(FAMILIES)


@pytest.mark.parametrize("version", FAMILIES)
def test_new_names_do_not_clash_with_the_functions_names(version: str) -> None:
    """New names begin with `agentcore_`; the planner refuses any other that is new."""
    bound: Counter[tuple[str, str, str]] = Counter()
    edits = {edit for name in NAMES for edit in registry.edits(name, version)}
    for edit in edits:
        if not isinstance(edit, Insert | Replace | AddCondition | AddKeyword):
            continue
        names = {
            name
            for name in surgery.bound_names(ast.parse(edit.new_code))
            if name.startswith("agentcore_")
        }
        function = surgery.definition(sources(version)[edit.file], edit.scope)
        assert not names & surgery.all_names(function), edit.name
        bound.update((edit.file, edit.scope, name) for name in names)
    assert bound and set(bound.values()) == {1}


def unsorted_imports(folder: Path) -> Counter[str]:
    """Count the blocks of imports, by file, that are not in isort's order."""
    settings = ["--select", "I", "--config", 'lint.isort.known-first-party=["sglang"]']
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache"]
    ran = subprocess.run(
        [*command, *settings, "--output-format", "json"],
        cwd=folder,
        capture_output=True,
    )
    found = json.loads(ran.stdout)
    return Counter(str(Path(one["filename"]).relative_to(folder)) for one in found)


@pytest.mark.parametrize("version", FAMILIES)
def test_imports_stay_sorted(version: str, tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    for folder, files in ((before, sources(version)), (after, patched(version))):
        for path, text in hooks(files).items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(text)
    assert unsorted_imports(after) <= unsorted_imports(before)
