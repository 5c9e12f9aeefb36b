"""The bytecode files of a source: their places, and when Python would run them."""

from __future__ import annotations

import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from agentcore_patches.disk.filesystem import (
    File,
    FileInfo,
    Metadata,
    draft_path,
    make_folder,
    read,
    read_bytes,
    same_content,
    sync,
    write_draft,
)
from agentcore_patches.errors import AccessError

_SECOND_NS = 1_000_000_000


class Bytecode:
    """The bytecode files of one source, for all interpreters."""

    def __init__(self, package: Path, path: str) -> None:
        self.package = package
        self.source = package / path
        self.folder = self.source.parent / "__pycache__"

    def files(self) -> list[Path]:
        """Files and links of any kind; no folders, no names that Python never uses."""
        try:
            if self.folder.is_symlink():
                return []
            found = sorted(self.folder.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []
        stem = f"{self.source.stem}."
        return [
            file
            for file in found
            if file.match("*.pyc")
            and file.name.startswith(stem)
            and file.name.isprintable()
            and (file.is_symlink() or not file.is_dir())
        ]

    def read(self) -> dict[str, File]:
        """The regular files, by path below the package.

        Links and the like are not followed; they are removed with their source's text,
        and Python makes them again.
        """
        files = {str(f.relative_to(self.package)): _regular(f) for f in self.files()}
        return {path: found for path, found in files.items() if found}

    def remove_stale(
        self, source: FileInfo | None, caches: Mapping[str, FileInfo]
    ) -> None:
        """Remove all bytecode except `caches`, the bytecode of `source`."""
        removed = False
        for file in self.files():
            kept = caches.get(str(file.relative_to(self.package)))
            found = _regular(file)
            if kept is not None and found and same_content(found.info, kept):
                continue
            try:
                file.unlink(missing_ok=True)
                removed = True
            except OSError as error:
                if source is not None and _could_run(file, source):
                    raise AccessError(
                        f"{file} cannot be removed ({error.strerror}), and Python would "
                        "still run it instead of the new source. Nothing was changed.",
                        hint=f"Make {file.parent} writable.",
                    ) from error
        if removed:
            sync(self.folder)

    def restore(
        self, caches: Mapping[str, FileInfo], load: Callable[[str], bytes]
    ) -> None:
        """Put saved files back, except those whose saved content is damaged."""
        for path, info in caches.items():
            file = self.package / path
            if not file.exists():
                make_folder(file.parent, like=file.parent.parent)
                with suppress(AccessError, FileNotFoundError):
                    status = self.source.stat()
                    mode = stat.S_IMODE(status.st_mode) & 0o666 | 0o200
                    owner = Metadata(mode, status.st_uid, status.st_gid, must_own=False)
                    write_draft(file, info, load(info.sha256), owner)
                    draft_path(file).replace(file)
        if caches:
            sync(self.folder)

    def unused_mtime(self, now_ns: int) -> int:
        """`now_ns`, or the next second (ns) that no bytecode file records."""
        seconds = set()
        with suppress(FileNotFoundError):
            seconds.add(int(self.source.stat().st_mtime))
        for file in self.files():
            with suppress(OSError):
                seconds.add(_header(file)[1])
        while now_ns // _SECOND_NS in seconds:
            now_ns += _SECOND_NS
        return now_ns


def _regular(file: Path) -> File | None:
    """Read a regular file that is not too large; None for anything else."""
    with suppress(FileNotFoundError):
        if stat.S_ISREG(file.lstat().st_mode):
            return read(file)
    return None


def _could_run(bytecode: Path, source: FileInfo) -> bool:
    """True if Python would run a bytecode file in place of this source (PEP 552)."""
    flags, mtime, size = _header(bytecode)
    if flags & 0b01:
        return not flags & 0b10
    seconds = source.mtime_ns // _SECOND_NS
    return (mtime, size) == (seconds & 0xFFFFFFFF, source.size & 0xFFFFFFFF)


def _header(bytecode: Path) -> tuple[int, int, int]:
    """Flags, source time (s) and source size of a bytecode file."""
    raw = read_bytes(bytecode)
    flags, mtime, size = (
        int.from_bytes(raw[at : at + 4], "little") for at in (4, 8, 12)
    )
    return flags, mtime, size
