"""One file at a time: what it is, and how it is replaced without being written into."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from agentcore_patches.errors import AccessError

FOLDER = ".agentcore-patch"
# Extended attributes that belong to the file and not to its text.
_XATTRS = ("system.posix_acl_access", "user.")


@dataclass(frozen=True)
class FileInfo:
    """A file's metadata and hash: all that is needed to make it again, but for its text.

    `link` is what a symbolic link points to; `sha256`, `size` and `mode` are then
    those of the file behind it. Values of `xattrs` are in hex.
    """

    sha256: str
    size: int
    mode: int
    uid: int
    gid: int
    mtime_ns: int
    link: str | None = None
    xattrs: Mapping[str, str] = field(default_factory=dict)


def same_content(one: FileInfo | None, other: FileInfo | None) -> bool:
    """Whether both have the same text and are the same kind of file, or neither exists."""
    if one is None or other is None:
        return one is other
    return (one.sha256, one.link) == (other.sha256, other.link)


def digest(text: bytes) -> str:
    """The SHA-256 of a text, in hex: its name in the store."""
    return sha256(text).hexdigest()


def read(file: Path) -> tuple[FileInfo, bytes] | None:
    """A file or what its symbolic link points to, and its content; None if missing."""
    try:
        status = file.lstat()
        link = str(file.readlink()) if stat.S_ISLNK(status.st_mode) else None
        behind = file.stat()
        if not stat.S_ISREG(behind.st_mode):
            raise OSError(errno.EINVAL, "Not a regular file", str(file))
        text = file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    info = FileInfo(
        sha256=digest(text),
        size=len(text),
        mode=stat.S_IMODE(behind.st_mode),
        uid=status.st_uid,
        gid=status.st_gid,
        mtime_ns=status.st_mtime_ns,
        link=link,
        xattrs=_xattrs(file),
    )
    return info, text


def file_info(file: Path) -> FileInfo | None:
    """`read` without the text."""
    found = read(file)
    return found[0] if found else None


def temp_path(target: Path) -> Path:
    """Where a new file is written before it replaces its target."""
    return target.with_name(f".{target.name}{FOLDER}")


def write_temp(
    target: Path, info: FileInfo, text: bytes, *, must_own: bool = True
) -> None:
    """Write a file in full, synced, at its target's `temp_path`.

    Without `must_own`, it is no error if this user may not set its owner.
    """
    draft = temp_path(target)
    draft.unlink(missing_ok=True)
    if info.link is not None:
        draft.symlink_to(info.link)
        with suppress(PermissionError):
            os.chown(draft, info.uid, info.gid, follow_symlinks=False)
        times = (info.mtime_ns, info.mtime_ns)
        os.utime(draft, ns=times, follow_symlinks=False)
        return
    with add_file_name(draft), os.fdopen(_create(draft), "wb") as stream:
        stream.write(text)
        stream.flush()
        _set_metadata(stream.fileno(), info, must_own)
        os.fsync(stream.fileno())


def write_whole(file: Path, text: bytes, *, mode: int, owner: Path) -> None:
    """Make or replace a file of ours, whole or not at all, synced.

    If root makes it, it gets the owner of `owner`.
    """
    draft = file.with_name(f"{file.name}.tmp")
    draft.unlink(missing_ok=True)
    with add_file_name(draft), os.fdopen(_create(draft), "wb") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    set_mode_and_owner(draft, mode=mode, owner=owner)
    draft.replace(file)


def set_mode_and_owner(file: Path, *, mode: int, owner: Path) -> None:
    """Set a file's mode, and, as root, its owner to that of the file `owner`."""
    file.chmod(mode)
    if os.geteuid() == 0:
        status = owner.stat()
        os.chown(file, status.st_uid, status.st_gid)


def make_folder(folder: Path, *, like: Path) -> None:
    """Make a folder of ours, with the mode and owner of another, if it is missing."""
    with suppress(FileExistsError):
        folder.mkdir()
        mode = stat.S_IMODE(like.stat().st_mode)
        set_mode_and_owner(folder, mode=mode, owner=like)


def created_info(package: Path, path: str) -> FileInfo:
    """What a file that we create is like, but for its text and time.

    It may be read and written as the nearest Python file of SGLang, and its owner is
    that of the package.
    """
    owner = package.stat()
    mode = 0o644
    for folder in Path(path).parents:
        neighbours = sorted((package / folder).glob("*.py"))
        if file := next(filter(Path.is_file, neighbours), None):
            mode = file.stat().st_mode & 0o666
            break
    return FileInfo("", 0, mode, owner.st_uid, owner.st_gid, 0)


def make_parents(package: Path, path: str) -> None:
    """Make the folders on the way to a file below the package, if they are missing."""
    for folder in reversed(Path(path).parents[:-1]):
        if not (package / folder).exists():
            make_folder(package / folder, like=(package / folder).parent)
            sync((package / folder).parent)


def remove_empty_parents(package: Path, path: str) -> None:
    """Remove the folders on the way to a file that are empty now, the lowest first."""
    for folder in Path(path).parents[:-1]:
        if not remove_if_empty(package / folder):
            return


def remove_if_empty(folder: Path) -> bool:
    """Remove a folder; False if something is in it. A missing one counts as removed."""
    try:
        folder.rmdir()
        sync(folder.parent)
    except FileNotFoundError:
        pass
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise
        return False
    return True


def remove(file: Path) -> None:
    """Remove a file, or a folder with all that is in it."""
    if file.is_dir() and not file.is_symlink():
        for inner in file.iterdir():
            remove(inner)
        file.rmdir()
    else:
        file.unlink(missing_ok=True)


def sync(folder: Path) -> None:
    """Write a folder's entries to disk, if its file system can."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with add_file_name(folder):
            os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def require_inside(package: Path, path: str) -> None:
    """Raise AccessError if a folder on the way to a path is a symbolic link."""
    for folder in Path(path).parents:
        if folder != Path() and (package / folder).is_symlink():
            raise AccessError(
                f"{package / folder} is a symbolic link: its files belong to another "
                "tree. Nothing was changed. Patch that tree, with --sglang-dir."
            )


def _create(file: Path) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(file, flags, 0o600)


def _set_metadata(descriptor: int, info: FileInfo, must_own: bool) -> None:
    """Set owner, extended attributes, mode and time of a new file."""
    status = os.fstat(descriptor)
    if (status.st_uid, status.st_gid) != (info.uid, info.gid):
        try:
            os.fchown(descriptor, info.uid, info.gid)
        except PermissionError:
            if must_own:
                raise
    for name, value in info.xattrs.items():
        os.setxattr(descriptor, name, bytes.fromhex(value))
    os.fchmod(descriptor, info.mode)
    os.utime(descriptor, ns=(info.mtime_ns, info.mtime_ns))


def _xattrs(file: Path) -> dict[str, str]:
    with suppress(OSError):
        return {
            name: os.getxattr(file, name).hex()
            for name in os.listxattr(file)
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


@contextmanager
def access_errors(package: Path, outcome: str = "") -> Iterator[None]:
    """Turn an OSError into an AccessError that says what to do, and `outcome`."""
    try:
        yield
    except OSError as error:
        raise AccessError(f"{explain(error, package)} {outcome}".strip()) from error


def explain(error: BaseException, package: Path) -> str:
    """What went wrong, with which file, and what to do about it."""
    if not isinstance(error, OSError):
        return str(error) or type(error).__name__
    owner = f"Run the command as the user who owns {package}."
    space = "Free some space."
    mounted = "Something is mounted over it."
    locks = "This file system has no locks: install SGLang on another one."
    advice = {
        errno.EACCES: owner,
        errno.EPERM: owner,
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
