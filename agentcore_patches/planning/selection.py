"""Patches for one release, with their edits and the files that these write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from agentcore_patches.patches import registry

if TYPE_CHECKING:
    from agentcore_patches.edits import Edit


@dataclass(frozen=True)
class Selection:
    """The patches selected by a command, for one release; looked up once.

    Attributes:
        patches: the core and names of extras.
        release: one of `SUPPORTED_VERSIONS`.
    """

    patches: tuple[str, ...]
    release: str

    @cached_property
    def files(self) -> tuple[str, ...]:
        """Paths below `sglang` of the files to write, in writing order."""
        return registry.files(self.patches, self.release)

    @cached_property
    def edits(self) -> Mapping[Edit, str]:
        """The patch of each edit; the edits are in the order of application."""
        from agentcore_patches.edits import Land

        found: dict[Edit, str] = {}
        for patch in self.patches:
            for edit in registry.edits(patch, self.release):
                found.setdefault(edit, patch)
        if any(isinstance(edit, Land) for edit in found):
            facts = registry.facts(self.patches, self.release)
            found = {facts: registry.CORE, **found}
        return {edit: found[edit] for edit in registry.in_order(found)}
