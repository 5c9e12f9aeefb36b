"""One file at a time: what stands there, and how it is replaced without being written into."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from .errors import AccessError

FOLDER = ".agentcore-patch"
_SECOND_NS = 1_000_000_000
# Extended attributes that belong to the file and not to its text.
_XATTRS = ("system.posix_acl_access", "user.")


@dataclass(frozen=True)
class Node:
    """A file as it stands: all that is needed to make it again, but for its text.

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


def same(one: Node | None, other: Node | None) -> bool:
    """Whether both are the same text in the same kind of file, or both nothing."""
    if one is None or other is None:
        return one is other
    return (one.sha256, one.link) == (other.sha256, other.link)


def digest(text: bytes) -> str:
    """The name that a text goes by."""
    return sha256(text).hexdigest()


def read(file: Path) -> tuple[Node, bytes] | None:
    """A file, or what its symbolic link leads to; None if there is none."""
    try:
        status = file.lstat()
        link = str(file.readlink()) if stat.S_ISLNK(status.st_mode) else None
        behind = file.stat()
        if not stat.S_ISREG(behind.st_mode):
            raise OSError(errno.EINVAL, "Not a regular file", str(file))
        text = file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    node = Node(
        sha256=digest(text),
        size=len(text),
        mode=stat.S_IMODE(behind.st_mode),
        uid=status.st_uid,
        gid=status.st_gid,
        mtime_ns=status.st_mtime_ns,
        link=link,
        xattrs=_xattrs(file),
    )
    return node, text


def node_of(file: Path) -> Node | None:
    """`read` without the text."""
    found = read(file)
    return found[0] if found else None


def beside(target: Path) -> Path:
    """Where a new file waits for taking its target's place."""
    return target.with_name(f".{target.name}{FOLDER}")


def write_beside(
    target: Path, node: Node, text: bytes, *, must_own: bool = True
) -> None:
    """Make a file in full, synced, under another name in its target's folder.

    Without `must_own`, a file that may not be given to its owner is left ours.
    """
    draft = beside(target)
    draft.unlink(missing_ok=True)
    if node.link is not None:
        draft.symlink_to(node.link)
        with suppress(PermissionError):
            os.chown(draft, node.uid, node.gid, follow_symlinks=False)
        times = (node.mtime_ns, node.mtime_ns)
        os.utime(draft, ns=times, follow_symlinks=False)
        return
    with naming(draft), os.fdopen(_create(draft), "wb") as stream:
        stream.write(text)
        stream.flush()
        _dress(stream.fileno(), node, must_own)
        os.fsync(stream.fileno())


def write_whole(file: Path, text: bytes, *, mode: int, owner: Path) -> None:
    """Make or replace a file of ours, whole or not at all, synced.

    Made by root, it belongs to whom `owner` belongs to.
    """
    draft = file.with_name(f"{file.name}.tmp")
    draft.unlink(missing_ok=True)
    with naming(draft), os.fdopen(_create(draft), "wb") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    give(draft, mode=mode, owner=owner)
    draft.replace(file)


def give(file: Path, *, mode: int, owner: Path) -> None:
    """Set a file's mode, and, if root made it, its owner to that of another."""
    file.chmod(mode)
    if os.geteuid() == 0:
        status = owner.stat()
        os.chown(file, status.st_uid, status.st_gid)


def remove(file: Path) -> None:
    """Remove a file, or a folder with all that is in it."""
    if file.is_dir() and not file.is_symlink():
        for inner in file.iterdir():
            remove(inner)
        file.rmdir()
    else:
        file.unlink(missing_ok=True)


def sync(folder: Path) -> None:
    """Make the names in a folder last, where the file system knows how."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with naming(folder):
            os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def require_inside(package: Path, path: str) -> None:
    """Refuse a path that a symbolic link leads out of the package.

    Raises:
        AccessError: it does.
    """
    for folder in Path(path).parents:
        if folder != Path() and (package / folder).is_symlink():
            raise AccessError(
                f"{package / folder} is a symbolic link: what is behind it belongs to "
                f"another tree. Nothing was changed. Patch that one with --sglang-dir."
            )


def caches_of(source: Path) -> list[Path]:
    """The bytecode files of a source, of every interpreter."""
    try:
        files = sorted(cache_folder(source).iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    stem = f"{source.stem}."
    return [
        file for file in files if file.match("*.pyc") and file.name.startswith(stem)
    ]


def cache_folder(source: Path) -> Path:
    """Where the bytecode files of a source lie."""
    return source.parent / "__pycache__"


def could_run(cache: Path, source: Node) -> bool:
    """Whether an interpreter would take a bytecode file for this source's (PEP 552)."""
    flags, mtime, size = _header(cache)
    if flags & 0b01:
        return not flags & 0b10
    seconds = source.mtime_ns // _SECOND_NS
    return (mtime, size) == (seconds & 0xFFFFFFFF, source.size & 0xFFFFFFFF)


def unused_time(source: Path, now_ns: int) -> int:
    """`now_ns` or a little later: a time no bytecode file of the source goes by."""
    seconds = set()
    with suppress(FileNotFoundError):
        seconds.add(int(source.stat().st_mtime))
    for cache in caches_of(source):
        with suppress(OSError):
            seconds.add(_header(cache)[1])
    while now_ns // _SECOND_NS in seconds:
        now_ns += _SECOND_NS
    return now_ns


def _header(cache: Path) -> tuple[int, int, int]:
    """Flags, source time (s) and source size of a bytecode file."""
    with cache.open("rb") as stream:
        raw = stream.read(16)
    flags, mtime, size = (
        int.from_bytes(raw[at : at + 4], "little") for at in (4, 8, 12)
    )
    return flags, mtime, size


def _create(file: Path) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(file, flags, 0o600)


def _dress(descriptor: int, node: Node, must_own: bool) -> None:
    """Give a new file the owner, attributes, mode and time of a node."""
    status = os.fstat(descriptor)
    if (status.st_uid, status.st_gid) != (node.uid, node.gid):
        try:
            os.fchown(descriptor, node.uid, node.gid)
        except PermissionError:
            if must_own:
                raise
    for name, value in node.xattrs.items():
        os.setxattr(descriptor, name, bytes.fromhex(value))
    os.fchmod(descriptor, node.mode)
    os.utime(descriptor, ns=(node.mtime_ns, node.mtime_ns))


def _xattrs(file: Path) -> dict[str, str]:
    with suppress(OSError):
        return {
            name: os.getxattr(file, name).hex()
            for name in os.listxattr(file)
            if name.startswith(_XATTRS)
        }
    return {}


@contextmanager
def naming(file: Path) -> Iterator[None]:
    """Give errors of calls on a descriptor the name of its file."""
    try:
        yield
    except OSError as error:
        # Some of them give the descriptor.
        if error.filename is None or isinstance(error.filename, int):
            error.filename = str(file)
        raise


@contextmanager
def typed_errors(package: Path, outcome: str = "") -> Iterator[None]:
    """Turn an OSError into an AccessError that says what to do, and how things stand."""
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
