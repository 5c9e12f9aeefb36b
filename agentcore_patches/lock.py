"""The lock by which commands on the same install wait for each other.

It is an flock on a file in our folder: the kernel frees it when its process ends, and a
shared file system shows it to other machines. As the folder may be removed by the
command that holds the lock, it counts only while the locked file is still in place.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from agentcore_patches.errors import AccessError
from agentcore_patches.files import add_file_name, make_folder, set_mode_and_owner

_POLL_SECONDS = 0.03


def acquire(
    lock: Path, package: Path, *, timeout: float, on_wait: Callable[[str], None]
) -> int:
    """Lock a package, waiting up to `timeout` seconds; returns the file descriptor.

    The folder of the lock file is made if it is missing. `on_wait` is called once, with
    a line that says which process has the lock.

    Raises:
        AccessError: another command did not end in time.
        OSError: the file cannot be made, opened or locked.
    """
    if lock.parent.is_symlink():
        raise AccessError(
            f"{lock.parent} is a symbolic link, which agentcore-patch never makes. "
            "Nothing was changed. Remove it, then run the command again."
        )
    deadline = time.monotonic() + timeout
    announced = False
    while True:
        descriptor = _open(lock, package)
        try:
            with add_file_name(lock):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_in_place(descriptor, lock):
                return descriptor
            os.close(descriptor)
            continue
        except BlockingIOError:
            holder = os.read(descriptor, 100).decode(errors="replace")
            os.close(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        who = f"another agentcore-patch ({holder or 'just started'})"
        if time.monotonic() >= deadline:
            raise AccessError(
                f"{package} is locked by {who}, which did not finish within "
                f"{timeout:g} s. Nothing was changed. Try again, or wait longer with "
                "--lock-timeout."
            )
        if not announced:
            announced = True
            on_wait(f"waiting for {who} to finish with {package}")
        time.sleep(_POLL_SECONDS)


def write_holder(descriptor: int, lock: Path, package: Path) -> None:
    """Write into the lock file which process holds it, for those who wait."""
    with add_file_name(lock):
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"process {os.getpid()}".encode())
        set_mode_and_owner(lock, mode=0o644, owner=package)


def close(descriptor: int) -> None:
    """Free the lock."""
    os.close(descriptor)


def _open(lock: Path, package: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        try:
            make_folder(lock.parent, like=package)
            return os.open(lock, flags, 0o644)
        except FileNotFoundError:  # its last holder just removed the folder
            if not package.is_dir():
                raise
        except BaseException:
            with suppress(OSError):
                lock.parent.rmdir()
            raise


def _is_in_place(descriptor: int, lock: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), lock.lstat())
    except FileNotFoundError:
        return False
