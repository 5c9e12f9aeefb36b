"""What each patch, alone, changes in the files of the wheel: kept as diffs, to be read.

A diff that has changed on purpose is written anew by

    AGENTCORE_WRITE_DIFFS=1 pytest tests/sglang_sources/test_diffs.py
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from agentcore_patches.diff import unified_diff
from agentcore_patches.patches import registry
from agentcore_patches.plan import make_plan
from tests.helpers import wheel
from tests.helpers.planning import VERSION

EXPECTED = Path(__file__).parent / "expected" / VERSION
WRITE = "AGENTCORE_WRITE_DIFFS"


@pytest.mark.parametrize("name", registry.names())
def test_a_patch_changes_what_its_diff_says(
    pristine: Mapping[str, bytes], name: str
) -> None:
    files = make_plan(pristine, [name], VERSION, wheel.read).files
    diff = "".join(
        unified_diff(path, pristine[path], files[path]) for path in sorted(files)
    )
    file = EXPECTED / f"{name}.diff"
    if os.environ.get(WRITE):
        file.write_text(diff)
    if not file.exists() or file.read_text() != diff:
        pytest.fail(
            f"The diff of the patch `{name}` is not that of {file.name}. If it has "
            f"changed on purpose: {WRITE}=1 pytest {Path(__file__).name}, then read "
            "`git diff`.",
            pytrace=False,
        )


def test_every_diff_is_of_a_patch() -> None:
    assert {file.stem for file in EXPECTED.iterdir()} == set(registry.names())


def test_a_diff_that_changed_is_told_in_one_line(
    pristine: Mapping[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(WRITE, raising=False)
    monkeypatch.setattr(f"{__name__}.EXPECTED", tmp_path)
    [name, *_] = registry.names()
    with pytest.raises(pytest.fail.Exception) as failed:
        test_a_patch_changes_what_its_diff_says(pristine, name)
    assert f"The diff of the patch `{name}` is not that of {name}.diff" in str(
        failed.value
    )
    assert str(failed.value).count("\n") == 0
