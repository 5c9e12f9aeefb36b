"""Read and replace one file at a time, without writing into it."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from re import fullmatch

from agentcore_patches.errors import AccessError

FOLDER = ".agentcore-patch"
LARGEST = 16 * 1024 * 1024
"""Size limit of files that are read, in bytes."""

# Extended attributes that belong to the file and not to its content.
_XATTRS = ("system.posix_acl_access", "user.")


@dataclass(frozen=True)
class FileInfo:
    """Description of a file in a record.

    Owner, mode and attributes are not recorded: a file inherits them from the file that it
    replaces. `link` is the target of a symbolic link; `sha256` and `size` then describe
    the target.
    """

    sha256: str
    size: int
    mtime_ns: int
    link: str | None = None

    def __post_init__(self) -> None:
        if not fullmatch(r"[0-9a-f]{64}", self.sha256):
            raise ValueError("not a SHA-256")
        if not (0 <= self.size <= LARGEST and -(2**62) < self.mtime_ns < 2**62):
            raise ValueError("not a size or not a time")
        if self.link is not None and not 0 < len(os.fsencode(self.link)) < 4096:
            raise ValueError("not a path")
        if "\0" in (self.link or ""):
            raise ValueError("not a path")


@dataclass(frozen=True)
class Metadata:
    """Owner, mode and extended attributes of a file.

    `must_own`: it is an error if the owner cannot be set.
    """

    mode: int
    uid: int
    gid: int
    xattrs: Mapping[str, bytes] = field(default_factory=dict)
    must_own: bool = True


@dataclass(frozen=True)
class File:
    """A file as it is on disk."""

    info: FileInfo
    text: bytes
    metadata: Metadata


def same_content(one: FileInfo | None, other: FileInfo | None) -> bool:
    """True if both have the same content and kind of file, or if neither exists."""
    if one is None or other is None:
        return one is other
    return (one.sha256, one.link) == (other.sha256, other.link)


def digest(text: bytes) -> str:
    """Return the SHA-256 in hex: the name in the store."""
    return sha256(text).hexdigest()


def read_bytes(file: Path, *, follow: bool = False, most: int = LARGEST) -> bytes:
    """Read a regular file that is not too large.

    Raises:
        OSError: it cannot be read, is not a regular file, or is a link without `follow`.
    """
    with _opened(file, follow=follow) as descriptor:
        return _content(file, descriptor, most)


def read(file: Path) -> File | None:
    try:
        status = file.lstat()
        link = str(file.readlink()) if stat.S_ISLNK(status.st_mode) else None
        with _opened(file, follow=link is not None) as descriptor:
            text = _content(file, descriptor, LARGEST)
            behind = os.fstat(descriptor)
            xattrs = _xattrs(descriptor)
    except (FileNotFoundError, NotADirectoryError):
        return None
    owner = status if link is not None else behind
    info = FileInfo(digest(text), len(text), owner.st_mtime_ns, link)
    mode = stat.S_IMODE(behind.st_mode)
    return File(info, text, Metadata(mode, owner.st_uid, owner.st_gid, xattrs))


def file_info(file: Path) -> FileInfo | None:
    found = read(file)
    return found.info if found else None


def neighbouring_metadata(package: Path, path: str) -> Metadata:
    """Return the metadata for a new file.

    It has the permissions of the nearest Python file of SGLang, and the package's owner.
    """
    owner = package.stat()
    folders = (package / folder for folder in Path(path).parents)
    files = (file for folder in folders for file in sorted(folder.glob("*.py")))
    nearest = next(filter(Path.is_file, files), None)
    mode = nearest.stat().st_mode & 0o666 if nearest else 0o644
    return Metadata(mode, owner.st_uid, owner.st_gid, must_own=False)


def draft_path(target: Path) -> Path:
    """Return the path at which a new file is written before it replaces its target."""
    return target.with_name(f".{target.name}{FOLDER}")


def write_draft(target: Path, info: FileInfo, text: bytes, metadata: Metadata) -> None:
    """Write a file in full, synced, at its target's `draft_path`."""
    draft = draft_path(target)
    if info.link is not None:
        draft.unlink(missing_ok=True)
        draft.symlink_to(info.link)
        with suppress(PermissionError):
            os.chown(draft, metadata.uid, metadata.gid, follow_symlinks=False)
        times = (info.mtime_ns, info.mtime_ns)
        with add_file_name(draft):
            os.utime(draft, ns=times, follow_symlinks=False)
        return

    def finish(descriptor: int) -> None:
        _set_metadata(descriptor, metadata)
        os.utime(descriptor, ns=(info.mtime_ns, info.mtime_ns))

    _write_new(draft, text, finish)


def write_whole(file: Path, text: bytes, *, mode: int = 0o644) -> None:
    """Create or replace a file in the state folder, whole or not at all, synced."""
    draft = file.with_name(f"{file.name}.tmp")
    _write_new(draft, text, lambda descriptor: os.fchmod(descriptor, mode))
    draft.replace(file)


def make_folder(folder: Path, *, like: Path, keep_out: int = 0) -> None:
    """Make a folder with the mode and the owner of another one, if it is missing.

    `keep_out`: bits to remove from its mode.
    """
    with suppress(FileExistsError):
        folder.mkdir()
        model = like.stat()
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
        descriptor = os.open(folder, flags)
        try:
            with add_file_name(folder):
                if os.geteuid() == 0:
                    os.fchown(descriptor, model.st_uid, model.st_gid)
                os.fchmod(descriptor, stat.S_IMODE(model.st_mode) & ~keep_out)
        finally:
            os.close(descriptor)
        sync(folder.parent)


def make_parents(package: Path, path: str) -> None:
    for folder in reversed(Path(path).parents[:-1]):
        make_folder(package / folder, like=(package / folder).parent)


def remove_empty_parents(package: Path, path: str) -> None:
    """Remove the parent folders of a file that are now empty, the lowest first."""
    for folder in Path(path).parents[:-1]:
        remove_if_empty(package / folder)


def remove_if_empty(folder: Path) -> None:
    """Remove a folder, unless it is missing or not empty."""
    try:
        folder.rmdir()
        sync(folder.parent)
    except FileNotFoundError:
        pass
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise


def files_in(folder: Path) -> list[Path]:
    """Return the files in a folder if it exists, without subfolders.

    Copies that NFS keeps of removed files until their last reader closes them are left out.
    """
    found = folder.iterdir() if folder.is_dir() else ()
    return [
        file
        for file in found
        if (file.is_symlink() or not file.is_dir()) and not file.match(".nfs*")
    ]


def sync(folder: Path) -> None:
    """Write a folder's entries to disk, if its file system can."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with add_file_name(folder):
            os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def require_inside(package: Path, path: str) -> None:
    """Refuse a file whose parent folders lead out of the package.

    Raises:
        AccessError: a parent folder is a symbolic link, or, for root, another user's.
    """
    own = Path(path).parents[:-1]
    for folder in (*own, Path(path).parent / "__pycache__"):
        place = package / folder
        try:
            status = place.lstat()
        except FileNotFoundError:
            continue
        if stat.S_ISLNK(status.st_mode):
            raise AccessError(
                f"{place} is a symbolic link: its files belong to another tree. Nothing "
                "was changed.",
                hint="Patch that tree, with --sglang-dir, or remove the link.",
            )
        if os.geteuid() == 0 and status.st_uid != 0:
            raise AccessError(
                f"{place} belongs to user {status.st_uid}, but {package} to root. Nothing "
                f"was changed.",
                hint=f"Give all of {package} to one user.",
            )


def _write_new(draft: Path, text: bytes, finish: Callable[[int], None]) -> None:
    """Write a new file, synced. Until `finish` is done, only its writer can access it."""
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with add_file_name(draft), os.fdopen(descriptor, "wb") as stream:
        stream.write(text)
        stream.flush()
        finish(stream.fileno())
        os.fsync(stream.fileno())


@contextmanager
def _opened(file: Path, *, follow: bool) -> Iterator[int]:
    """Open a regular file for reading; do not wait for other kinds."""
    flags = os.O_RDONLY | os.O_NONBLOCK
    descriptor = os.open(file, flags if follow else flags | os.O_NOFOLLOW)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "Not a regular file", str(file))
        yield descriptor
    finally:
        os.close(descriptor)


def _content(file: Path, descriptor: int, most: int) -> bytes:
    pieces, left = [], most + 1
    with add_file_name(file):
        while piece := os.read(descriptor, min(left, 1 << 20)):
            pieces.append(piece)
            left -= len(piece)
    if not left:
        raise OSError(errno.EFBIG, f"Larger than {most} bytes", str(file))
    return b"".join(pieces)


def _set_metadata(descriptor: int, metadata: Metadata) -> None:
    status = os.fstat(descriptor)
    if (status.st_uid, status.st_gid) != (metadata.uid, metadata.gid):
        try:
            os.fchown(descriptor, metadata.uid, metadata.gid)
        except PermissionError:
            if metadata.must_own:
                raise
    # A default ACL of the folder gives a new file its own ACL.
    for name in _xattrs(descriptor):
        os.removexattr(descriptor, name)
    for name, value in metadata.xattrs.items():
        os.setxattr(descriptor, name, value)
    os.fchmod(descriptor, metadata.mode)


def _xattrs(descriptor: int) -> dict[str, bytes]:
    with suppress(OSError):
        return {
            name: os.getxattr(descriptor, name)
            for name in os.listxattr(descriptor)
            if name.startswith(_XATTRS)
        }
    return {}


@contextmanager
def add_file_name(file: Path) -> Iterator[None]:
    """Add the name of a file to the OSErrors of calls on its descriptor."""
    try:
        yield
    except OSError as error:
        # Some calls set it to the descriptor.
        if error.filename is None or isinstance(error.filename, int):
            error.filename = str(file)
        raise


def explain(error: BaseException, package: Path) -> str:
    if not isinstance(error, OSError):
        return str(error) or type(error).__name__
    owner = f"Run the command as the user who owns {package}."
    space = "Free some space."
    mounted = "Something is mounted over it."
    locks = "This file system has no locks: install SGLang on another one."
    advice = {
        errno.EACCES: owner,
        errno.EPERM: f"Give all of {package} to one user, and run the command as that.",
        errno.EROFS: "Mount the file system for writing.",
        errno.ENOSPC: space,
        errno.EDQUOT: space,
        errno.EBUSY: mounted,
        errno.EXDEV: mounted,
        errno.ENOLCK: locks,
        errno.ENOSYS: locks,
    }.get(error.errno or 0, "")
    name = error.filename2 or error.filename or package
    return f"{os.fsdecode(name)}: {error.strerror}. {advice}".strip()
