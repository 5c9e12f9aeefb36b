"""A release's files under another version number are refused, or patched alike."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from functools import partial

import pytest

from agentcore_patches.errors import SourceConflict
from agentcore_patches.patches import registry
from agentcore_patches.patches.registry import CORE
from agentcore_patches.planning.plan import make_plan
from agentcore_patches.planning.selection import Selection
from tests.helpers.wheels import wheel_files
from tests.sglang_sources.releases import FAMILIES, NAMES, read


def tree(
    selection: tuple[str, ...], release: str, number: str
) -> Mapping[str, bytes] | None:
    """Patch a release's files under another number; None if they are refused."""
    files = wheel_files(release, registry.files(selection, number))
    chosen = Selection(selection, number)
    try:
        made = make_plan(files, chosen, partial(read, release)).files
    except SourceConflict as refused:
        assert "Nothing was written" in str(refused)
        return None
    return {**files, **made}


@pytest.mark.parametrize("selection", [(CORE,), NAMES], ids="+".join)
def test_the_files_of_another_release_are_refused(selection: tuple[str, ...]) -> None:
    for release, number in itertools.permutations(FAMILIES, 2):
        made = tree(selection, release, number)
        if made is not None:
            assert made == tree(selection, release, release), (release, number)
