"""The lock by which commands on the same install wait for each other.

It is an flock on a file in the state folder: the kernel frees it when its process exits, and
a shared file system shows it to other machines. As the folder may be removed by the
command that holds the lock, it counts only while the locked file is still in place.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from agentcore_patches.disk.filesystem import add_file_name, make_folder
from agentcore_patches.errors import AccessError

_POLL_SECONDS = 0.03
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK


class Lock:
    """The lock of a package: a file in the state folder, created if it is missing."""

    def __init__(self, package: Path, file: Path) -> None:
        self.package = package
        self.file = file

    def acquire(self, timeout: float, on_wait: Callable[[str], None]) -> int:
        """Take the lock, waiting up to `timeout` seconds; return its descriptor.

        Call `sign` then, so that waiting commands can name the holder. `on_wait` is called
        once, with a line that names the holder of the lock.

        Raises:
            AccessError: another command did not finish in time.
            OSError: the file cannot be made, opened or locked.
        """
        deadline = time.monotonic() + timeout
        announced = False
        while True:
            with add_file_name(self.file):
                descriptor = self._open()
                try:
                    holder = self._take(descriptor)
                    if holder is None:
                        return descriptor
                except BaseException:
                    os.close(descriptor)
                    raise
            os.close(descriptor)
            who = f"another agentcore-patch ({holder})"
            if time.monotonic() >= deadline:
                raise AccessError(
                    f"{self.package} is locked by {who}, which did not finish within "
                    f"{timeout:g} s. Nothing was changed.",
                    hint="Try again, or wait longer with --lock-timeout.",
                )
            if not announced:
                announced = True
                on_wait(f"waiting for {who} to finish with {self.package}")
            time.sleep(_POLL_SECONDS)

    def sign(self, descriptor: int) -> None:
        """Write the holder's process ID into the file."""
        with add_file_name(self.file):
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"process {os.getpid()}".encode())
            os.fchmod(descriptor, 0o644)

    def _take(self, descriptor: int) -> str | None:
        """Lock the file, or return its holder."""
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                found = re.match(rb"process \d{1,10}$", os.read(descriptor, 30))
                return found[0].decode() if found else "just started"
            if os.path.samestat(os.fstat(descriptor), self.file.lstat()):
                return None
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ESTALE):
                raise
        return "just ended"

    def _open(self) -> int:
        folder = self.file.parent
        while True:
            try:
                make_folder(folder, like=self.package, keep_out=0o002)
                if not self.file.exists():
                    self._probe()
                return os.open(self.file, _FLAGS, 0o644)
            except FileNotFoundError:  # its last holder just removed the folder
                if not self.package.is_dir():
                    raise
            except BaseException:
                with suppress(OSError):
                    folder.rmdir()
                raise

    def _probe(self) -> None:
        """Fail if nothing can be locked, before there is a lock file.

        A lock file cannot be removed again: another command may be about to lock it.
        """
        probe = self.file.with_name("probe")
        descriptor = os.open(probe, _FLAGS, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        finally:
            os.close(descriptor)
            probe.unlink(missing_ok=True)
