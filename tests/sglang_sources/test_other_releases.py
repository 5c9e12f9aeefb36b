"""The files of a release under the number of one beside it: refused, or patched alike."""

from __future__ import annotations

import itertools

import pytest

from agentcore_patches.errors import SourceConflict
from agentcore_patches.patches import registry
from agentcore_patches.plan import make_plan
from tests.helpers.wheels import wheel_files
from tests.sglang_sources.releases import FAMILIES, NAMES, patched

pytestmark = pytest.mark.usefixtures("planned_once")

NEIGHBOURS = [
    pair
    for older, newer in itertools.pairwise(FAMILIES)
    for pair in ((older, newer), (newer, older))
]
ALIKE = {("0.5.15", "0.5.16"), ("0.5.16", "0.5.15")}


@pytest.mark.parametrize(("release", "number"), NEIGHBOURS)
def test_the_files_of_another_release_are_refused(release: str, number: str) -> None:
    files = wheel_files(release, registry.files(NAMES, number))

    def read(path: str) -> bytes | None:
        return wheel_files(release, [path]).get(path)

    if (release, number) in ALIKE:
        made = make_plan(files, NAMES, number, read).files
        assert {**files, **made} == patched(release)
        return
    with pytest.raises(SourceConflict, match="Nothing was written"):
        make_plan(files, NAMES, number, read)
