"""Work with the rights of an install's owner."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentcore_patches.disk.filesystem import explain
from agentcore_patches.errors import AccessError


@contextmanager
def access(package: Path, outcome: str = "") -> Iterator[None]:
    """Work with the owner's rights; turn an OSError into AccessError with advice."""
    try:
        with rights_of_owner(package):
            yield
    except OSError as error:
        raise AccessError(f"{explain(error, package)} {outcome}".strip()) from error


@contextmanager
def rights_of_owner(package: Path) -> Iterator[None]:
    """As root on a package of another user: take on that user's rights, and no others.

    That user could plant links and files which root would follow and overwrite. All
    threads of the process have these rights until the end.

    Raises:
        AccessError: root may not take on that user's rights here.
        OSError: the package cannot be read.
    """
    owner = package.stat()
    if os.geteuid() != 0 or owner.st_uid == 0:
        yield
        return
    groups, group = os.getgroups(), os.getegid()
    try:
        try:
            os.setgroups([owner.st_gid])
            os.setegid(owner.st_gid)
            os.seteuid(owner.st_uid)
        except OSError as error:
            raise AccessError(
                f"{package} belongs to user {owner.st_uid}, whose rights root cannot take "
                f"on here ({error.strerror}). Nothing was changed.",
                hint="Run the command as that user.",
            ) from error
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)
        if os.getgroups() != groups:
            os.setgroups(groups)
