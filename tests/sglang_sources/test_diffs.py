"""What all patches change in the files of each release, kept to be read.

Hunks only: the modules that land are read in `agentcore_patches/landing`. A release whose
hunks are those of the one before says so. What has changed on purpose is written anew by

    AGENTCORE_WRITE_DIFFS=1 pytest tests/sglang_sources/test_diffs.py
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest

from agentcore_patches.edits import Edit, apply_edits
from agentcore_patches.patches.files import UPDATE_WEIGHTS_MIXIN
from agentcore_patches.patches.registry import edits
from tests.helpers.planning import VERSION
from tests.sglang_sources.hunks import Hunk, hunks, written
from tests.sglang_sources.releases import FAMILIES, patched, sources

EXPECTED = Path(__file__).parent / "expected"
WRITE = "AGENTCORE_WRITE_DIFFS"


@cache
def hunks_of(version: str) -> list[Hunk]:
    return hunks(sources(version), patched(version))


@pytest.mark.parametrize("version", FAMILIES)
def test_the_patches_change_what_the_diff_says(version: str) -> None:
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
            f"changed on purpose: {WRITE}=1 pytest {Path(__file__).name}, then read "
            "`git diff`.",
            pytrace=False,
        )


def test_every_diff_is_of_a_release() -> None:
    assert {file.stem for file in EXPECTED.iterdir()} == set(FAMILIES)


DECORATED = [
    edit
    for edit in edits("weight-versions", VERSION)
    if edit.file == UPDATE_WEIGHTS_MIXIN
]


@pytest.mark.parametrize("dropped", DECORATED, ids=lambda edit: edit.where)
def test_a_diff_shows_each_of_several_edits_that_look_alike(dropped: Edit) -> None:
    before = {dropped.file: sources(VERSION)[dropped.file]}
    without = [edit for edit in DECORATED if edit != dropped]
    of_all, of_others = (
        hunks(before, {dropped.file: apply_edits(before[dropped.file], chosen)[0]})
        for chosen in (DECORATED, without)
    )
    [missing] = [hunk for hunk in of_all if hunk not in of_others]
    assert dropped.where in ("the module", f"`{missing.scope}`")
    assert dropped.name in missing.lines


BEFORE = """\
def f():
    a()
    b()
    c()
    a()
    d()
    e()


@old
def g():
    pass
"""
AFTER = BEFORE.replace("    a()\n", "    a()\n    new()\n").replace(
    "@old", "# why\n@new\n@old"
)


def test_a_diff_keeps_equal_hunks_in_their_order() -> None:
    before = {"a.py": BEFORE.encode()}
    made = hunks(before, {"a.py": AFTER.encode()})
    assert [(hunk.scope, hunk.change) for hunk in made] == [
        ("f", "+    new()"),
        ("f", "+    new()"),
        ("g", "+# why\n+@new"),
    ]
    once = hunks(before, {"a.py": AFTER.replace("    new()\n", "", 1).encode()})
    assert written("2", once, "1", made).count("new()") == 1
    assert written("2", made, "1", once).count("new()") == 1
    moved = {"a.py": b"import x\n\n" + BEFORE.encode()}
    again = hunks(moved, {"a.py": b"import x\n\n" + AFTER.encode()})
    assert written("2", again, "1", made) == "SGLang 2: as 1.\n"
