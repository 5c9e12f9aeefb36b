"""The files of the installed wheel that patches touch, and a planner that remembers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache

import pytest

from agentcore_patches import edits, plan
from agentcore_patches.edits import Edit
from tests.helpers import wheel


@pytest.fixture(scope="session")
def pristine() -> Mapping[str, bytes]:
    """Original texts by path below `sglang`; none of the patches is in them."""
    return wheel.originals()


@pytest.fixture(scope="module")
def planned_once() -> Iterator[None]:
    """Remember what the planner made of a file, for tests that change one of them."""
    applied = cache(edits.apply_edits)

    def apply_edits(
        source: bytes, chosen: Sequence[Edit]
    ) -> tuple[bytes, tuple[bool, ...]]:
        return applied(source, tuple(chosen))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(edits, "apply_edits", apply_edits)
        patched.setattr(plan, "_check", cache(plan._check))
        yield
