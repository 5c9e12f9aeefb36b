"""Base classes of all edits, and of edits in a definition."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from dataclasses import dataclass
from textwrap import wrap
from typing import ClassVar

from agentcore_patches.edits.matching import InvalidEdit, headline
from agentcore_patches.edits.place import Place, SourceFile

OWNER = "agentcore-patch"

# With the deepest indentation of SGLang's code, no line has more than 88 characters.
_COMMENT_WIDTH = 66


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
    def comment(self) -> list[str]:
        """The lines of the comment above the change, with owner, name and reason.

        A reason that does not fit after the name gets its own line.
        """
        parts = [part for part in (self.name, self.note) if part]
        if not parts:
            return []
        texts = [": ".join([OWNER, *parts])]
        if len(parts) > 1 and len(texts[0]) > _COMMENT_WIDTH:
            texts = [f"{OWNER}: {self.name}", self.note]
        return [
            f"# {line}"
            for text in texts
            for line in wrap(text, _COMMENT_WIDTH, break_on_hyphens=False)
        ]

    def check(self) -> None:  # noqa: B027 - some kinds have nothing to check
        """Raise InvalidEdit if a part is not valid for this kind of edit."""


@dataclass(frozen=True)
class SourceEdit(Edit):
    """An edit of an existing file."""

    @abstractmethod
    def apply(self, source: SourceFile) -> bool:
        """Change a file; return False if it already has the change.

        Raises:
            CannotPlace: the place is missing, found too often, or changed by others.
        """


@dataclass(frozen=True)
class ScopedEdit(SourceEdit):
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
    """An edit inside its definition."""

    def apply(self, source: SourceFile) -> bool:
        return self.change(source.place(self.scope))

    @abstractmethod
    def change(self, place: Place) -> bool:
        """Change the definition, as `apply` does."""
