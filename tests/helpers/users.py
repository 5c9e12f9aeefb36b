"""Another user, whose files only root can make."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

USER, GROUP = 12345, 12346


def require_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can create files of another user or act as one")


def give_away(place: Path) -> None:
    require_root()
    for path in (place, *place.rglob("*")):
        os.chown(path, USER, GROUP, follow_symlinks=False)
