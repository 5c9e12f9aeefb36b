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
        patches: names of patches.
        release: one of `SUPPORTED_VERSIONS`.
    """

    patches: tuple[str, ...]
    release: str

    @cached_property
    def files(self) -> tuple[str, ...]:
        """Paths below `sglang` of the files to write, in writing order."""
        return registry.files(self.patches, self.release)

    @cached_property
    def by_patch(self) -> Mapping[str, tuple[Edit, ...]]:
        """The edits of each patch; the edits for the facts, which all share, come first."""
        return {patch: tuple(self._with_facts([patch])) for patch in self.patches}

    @cached_property
    def edits(self) -> tuple[Edit, ...]:
        """The edits of all patches, each once, in the order of application."""
        return tuple(self._with_facts(sorted(self.patches)))

    def _with_facts(self, patches: list[str]) -> list[Edit]:
        from agentcore_patches.edits import Land

        edits = [
            edit for patch in patches for edit in registry.edits(patch, self.release)
        ]
        if any(isinstance(edit, Land) for edit in edits):
            edits.insert(0, registry.facts(sorted(self.patches), self.release))
        return registry.in_order(dict.fromkeys(edits))
