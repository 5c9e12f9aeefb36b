"""What every edit has, and what those have that are made in a definition's tree."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from dataclasses import dataclass

from agentcore_patches.edits.cst_tools import Definition
from agentcore_patches.edits.matching import MalformedEdit


@dataclass(frozen=True)
class Edit(ABC):
    """One change of one definition.

    Attributes:
        file: path below `sglang`.
        scope: dotted path of the definition to change.
        note: why the change is there; becomes a comment above it where it lands.
        since, until: the first and the last SGLang release that it holds for; no limit
            if empty.
    """

    file: str
    scope: str
    _: dataclasses.KW_ONLY
    note: str = ""
    since: str = ""
    until: str = ""

    @abstractmethod
    def describe(self) -> str:
        """What the edit puts where, in a few words; never empty."""

    @property
    @abstractmethod
    def new_code(self) -> str:
        """The code that it brings, as Python that can be parsed on its own."""

    def check(self) -> None:
        """Look at what the author wrote, without any source.

        Raises:
            MalformedEdit: some of it is not what this kind of edit needs.
        """
        if not all(part.isidentifier() for part in self.scope.split(".")):
            raise MalformedEdit(f"the scope `{self.scope}` is not a dotted name")


@dataclass(frozen=True)
class DefinitionEdit(Edit):
    """An edit that is made in the tree of its definition."""

    @abstractmethod
    def apply(self, definition: Definition) -> Definition | None:
        """The changed definition, or None if the change is there already.

        Raises:
            Misplaced: the place is missing, found too often, or changed by others.
        """
