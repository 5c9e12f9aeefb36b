"""A planner with a cache."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from typing import TypeVar

import pytest

from agentcore_patches import edits
from agentcore_patches.edits import Edit, source
from agentcore_patches.planning import classes, plan

T = TypeVar("T")


@pytest.fixture(scope="module", autouse=True)
def planned_once() -> Iterator[Callable[[], None]]:
    """Cache the planner's results per file and per definition.

    Tests change one file or definition, and most releases have the same ones. The
    garbage collector would spend a third of the time on the cache. The fixture is a
    function that clears the cache: a release's mutants leave gigabytes.
    """
    forgets: list[Callable[[], None]] = []

    def remembered(function: Callable[..., T]) -> Callable[..., T]:
        kept = cache(function)
        forgets.append(kept.cache_clear)
        return kept

    def forget() -> None:
        for clear in forgets:
            clear()
        gc.collect()

    parse = lru_cache(maxsize=64)(source.parse.__wrapped__)
    applied = remembered(edits.apply_edits)

    def apply_edits(
        text: bytes, chosen: Sequence[Edit]
    ) -> tuple[bytes, tuple[bool, ...]]:
        return applied(text, tuple(chosen))

    with pytest.MonkeyPatch.context() as patched:
        for name in ("_imports_of", "_definitions_of", "_members_of"):
            patched.setattr(classes, name, remembered(getattr(classes, name)))
        patched.setattr(edits, "apply_edits", apply_edits)
        patched.setattr(source, "_edit_definition", remembered(source._edit_definition))
        patched.setattr(plan, "_check", remembered(plan._check))
        patched.setattr(source, "parse", parse)
        patched.setattr(classes, "parse", remembered(parse))
        gc.disable()
        yield forget
        gc.freeze()
        gc.enable()
