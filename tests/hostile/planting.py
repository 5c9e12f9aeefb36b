"""A package of another user, and state documents that this user plants in it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentcore_patches.disk.filesystem import FOLDER
from agentcore_patches.state import records
from tests.helpers.trees import Photograph, photograph
from tests.helpers.users import give_away


@dataclass(frozen=True)
class Planted:
    """A package of another user, and a folder of root beside it."""

    package: Path
    secrets: Path

    @property
    def folder(self) -> Path:
        """The state folder in the package."""
        return self.package / FOLDER

    def outside(self) -> Photograph:
        """Return all files of root."""
        return photograph(self.secrets)

    def plant(self, name: str, document: dict[str, Any]) -> None:
        """Plant a document with a valid checksum in the state folder."""
        self.folder.mkdir(exist_ok=True)
        (self.folder / "store").mkdir(exist_ok=True)
        (self.folder / name).write_bytes(signed(document))
        give_away(self.package)


def signed(document: dict[str, Any]) -> bytes:
    """Return a document with a valid checksum."""
    content = {k: v for k, v in document.items() if k not in ("format", "checksum")}
    return json.dumps(
        {"format": 2, "checksum": records._checksum(content), **content}
    ).encode()
