"""Snapshots of the files of a folder, to compare before and after."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import TypeAlias

Photograph: TypeAlias = dict[str, tuple[object, ...]]


def contents(folder: Path, pattern: str = "*") -> dict[str, bytes]:
    """Return the content of every file below a folder with such a name, by path."""
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in folder.rglob(pattern)
        if file.is_file()
    }


def photograph(root: Path) -> Photograph:
    """Return kind, mode, owner, content and time of all files below a folder."""
    found: Photograph = {}
    for place in sorted(root.rglob("*")):
        status = place.lstat()
        owner = (stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid)
        name = str(place.relative_to(root))
        if place.is_symlink():
            found[name] = ("link", *owner, status.st_mtime_ns, place.readlink())
        elif place.is_dir():
            found[name] = ("folder", *owner)
        else:
            found[name] = ("file", *owner, status.st_mtime_ns, place.read_bytes())
    return found


def without_ours(photograph: Photograph) -> Photograph:
    """Return a photograph without the state folder and agentcore-patch's drafts."""
    return {name: seen for name, seen in photograph.items() if ".agentcore" not in name}
