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

from tests.sglang_sources.hunks import Hunk, hunks, written
from tests.sglang_sources.releases import FAMILIES, patched, sources

EXPECTED = Path(__file__).parent / "expected"
WRITE = "AGENTCORE_WRITE_DIFFS"


@cache
def hunks_of(version: str) -> dict[Hunk, None]:
    return hunks(sources(version), patched(version))


@pytest.mark.parametrize("version", FAMILIES)
def test_the_patches_change_what_the_diff_says(version: str) -> None:
    earlier = FAMILIES[: FAMILIES.index(version)]
    before = earlier[-1] if earlier else ""
    text = written(
        version, hunks_of(version), before, hunks_of(before) if before else {}
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
