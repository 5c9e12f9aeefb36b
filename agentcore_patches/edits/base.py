"""Base classes of all edits, and of edits in the tree of a definition."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from agentcore_patches.edits.cst_tools import Definition
from agentcore_patches.edits.matching import InvalidEdit, headline


@dataclass(frozen=True)
class Edit(ABC):
    """One change to one file.

    Attributes:
        file: path below `sglang`.
        name: the hook's name, such as `tito/fields`.
        note: the reason for the change; it lands above the change, after the name.
    """

    file: str
    _: dataclasses.KW_ONLY
    name: str = ""
    note: str = ""

    @abstractmethod
    def describe(self) -> str:
        """Describe the edit and its place in a few words."""

    @property
    def where(self) -> str:
        """The part of the file that the edit changes."""
        return "the module"

    @property
    def new_code(self) -> str:
        """The added code, as a complete Python statement."""
        return ""

    @property
    def comment(self) -> str:
        return ": ".join(filter(None, (self.name, self.note)))

    def check(self) -> None:  # noqa: B027 - some kinds have nothing to check
        """Raise InvalidEdit if a part is not valid for this kind of edit."""


@dataclass(frozen=True)
class ScopedEdit(Edit):
    """An edit of one definition.

    Attributes:
        scope: dotted path of the definition.
    """

    scope: str

    may_capture: ClassVar[tuple[str, ...]] = ()
    """The attributes that may contain captures (`$X`)."""

    @property
    def where(self) -> str:
        return f"`{self.scope}`"

    def check(self) -> None:
        super().check()
        if not all(part.isidentifier() for part in self.scope.split(".")):
            raise InvalidEdit(f"the scope `{self.scope}` is not a dotted name")
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name not in self.may_capture and "$" in str(value):
                raise InvalidEdit(
                    f"`{headline(value)}` contains `$`, but captures are not allowed here"
                )


@dataclass(frozen=True)
class DefinitionEdit(ScopedEdit):
    """An edit to the tree of its definition."""

    @property
    def shapes(self) -> tuple[str, ...]:
        """The shapes of all statements that it matches."""
        return ()

    @abstractmethod
    def apply(self, definition: Definition) -> Definition | None:
        """Return the changed definition, or None if it already has the change.

        Raises:
            CannotPlace: the place is missing, found too often, or changed by others.
        """
