"""The record of an install's patches, and the journal.

Both are JSON files whose keys are the attributes of these classes. The paths in them are
checked on reading: anyone who can write into the package can write them, too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from agentcore_patches.disk.filesystem import FileInfo, digest, read_bytes, write_whole
from agentcore_patches.disk.typed_json import parse, typed
from agentcore_patches.errors import AccessError
from agentcore_patches.state.ownership import is_created, may_be_patched

_T = TypeVar("_T")


def is_same_build(one: str, other: str) -> bool:
    """Return True if two `tool_version`s have one version and hash the same patches.

    Their commits may differ: a commit need not change what is applied.
    """
    version, other_version = one.partition("+")[0], other.partition("+")[0]
    patches, other_patches = one.rpartition("+")[2], other.rpartition("+")[2]
    return (version, patches) == (other_version, other_patches)


@dataclass(frozen=True)
class FileRecord:
    """A patched file: the original, the new SHA-256, the original's bytecode files.

    `original` is None for a file that patches created.
    """

    original: FileInfo | None
    patched_sha256: str
    caches: Mapping[str, FileInfo]


@dataclass(frozen=True)
class Record:
    """The patches and files in place, and the version that applied them."""

    tool_version: str
    sglang_version: str
    patches: tuple[str, ...]
    files: Mapping[str, FileRecord]

    def __post_init__(self) -> None:
        _require_printable(self.tool_version, self.sglang_version, *self.patches)
        for path, file in self.files.items():
            _require_source(path)
            if (file.original is None) != is_created(path):
                raise ValueError("an original of a created file, or no original")
            _require_caches(path, file.caches)
            FileInfo(file.patched_sha256, 0, 0)

    @property
    def originals(self) -> dict[str, str]:
        """The SHA-256 of every original, by path."""
        return {
            path: file.original.sha256
            for path, file in self.files.items()
            if file.original
        }

    @property
    def texts(self) -> set[str]:
        """The SHA-256 of every stored file that belongs to the record."""
        found = set(self.originals.values())
        for file in self.files.values():
            caches = (info.sha256 for info in file.caches.values())
            found |= {file.patched_sha256, *caches}
        return found


@dataclass(frozen=True)
class Change:
    """A source and its bytecode files before and after. None: the file does not exist."""

    path: str
    before: FileInfo | None
    after: FileInfo | None
    caches_before: Mapping[str, FileInfo]
    caches_after: Mapping[str, FileInfo]

    def __post_init__(self) -> None:
        _require_source(self.path)
        _require_caches(self.path, self.caches_before)
        _require_caches(self.path, self.caches_after)

    def reversed(self) -> Change:
        return Change(
            self.path, self.after, self.before, self.caches_after, self.caches_before
        )


@dataclass(frozen=True)
class Journal:
    """The work that a command is about to do; `clears`: it leaves no record."""

    action: str
    changes: tuple[Change, ...]
    clears: bool

    def __post_init__(self) -> None:
        _require_printable(self.action)
        for change in self.changes:
            if change.after is None and not is_created(change.path):
                raise ValueError("a file of SGLang is removed")


class RecordFile:
    """The current record of an install, and the prepared one."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "state.json"
        self.next = folder / "state.next"

    def read(self) -> Record | None:
        return _read(self.file, Record)

    def prepare(self, record: Record) -> None:
        write_whole(self.next, _document(record))

    def switch(self, *, clears: bool) -> None:
        """Make the prepared record the current one; `clears`: leave no record."""
        if clears:
            self.file.unlink(missing_ok=True)
        else:
            self.next.replace(self.file)

    def can_switch(self, *, clears: bool) -> bool:
        """True if the record that `switch` would leave, if any, can be read."""
        with suppress(AccessError):
            return clears or _read(self.next, Record) is not None
        return False

    def is_switched(self, *, clears: bool) -> bool:
        return not (self.file if clears else self.next).exists()


class JournalFile:
    """The journal of a change: prepared, then committed, then removed."""

    def __init__(self, folder: Path) -> None:
        self.prepared = folder / "prepared.json"
        self.committed = folder / "committed.json"

    @property
    def files(self) -> tuple[Path, ...]:
        """Possible paths of a journal; the first existing one counts."""
        return self.committed, self.prepared

    def read(self) -> Journal | None:
        """Return the journal of a command that is running or was killed."""
        found = (_read(file, Journal) for file in self.files)
        return next(filter(None, found), None)

    @property
    def exists(self) -> bool:
        return any(file.exists() for file in self.files)

    def write(self, journal: Journal) -> None:
        """Write a change that is not committed yet."""
        write_whole(self.prepared, _document(journal))

    def commit(self) -> None:
        """From here on, the change is finished and not undone."""
        self.prepared.replace(self.committed)

    def withdraw(self) -> None:
        """From here on, the change is undone."""
        if self.committed.exists():
            self.committed.replace(self.prepared)

    def remove(self) -> None:
        for file in self.files:
            file.unlink(missing_ok=True)


def _read(file: Path, kind: type[_T]) -> _T | None:
    """Read a JSON file, or None; raise AccessError if it is damaged, or an OSError."""
    try:
        return typed(kind, _content(parse(read_bytes(file))))
    except FileNotFoundError:
        return None
    except ValueError:
        raise AccessError(
            f"{file} cannot be read: it is damaged, or it was written by another version "
            "of agentcore-patches. Nothing was changed.",
            hint="Run that version, or, as a last resort, remove "
            f" {file.parent} and reinstall SGLang.",
        ) from None


def _document(value: Record | Journal) -> bytes:
    content = asdict(value)
    marked = {"format": 2, "checksum": _checksum(content), **content}
    return json.dumps(marked, indent=1).encode()


def _checksum(content: Mapping[Any, Any]) -> str:
    return digest(json.dumps(content, sort_keys=True).encode())


def _content(document: Any) -> Any:
    """Return the attributes in a document whose format and checksum are right."""
    match document:
        case {"format": 2, "checksum": checksum, **content}:
            if checksum == _checksum(content):
                return content
    raise ValueError("damaged, or another format")


def _require_printable(*texts: str) -> None:
    for text in texts:
        if not text.isprintable() or len(text) > 1000:
            raise ValueError("unprintable or too long")


def _require_source(path: str) -> None:
    if not may_be_patched(path):
        raise ValueError("not a file that patches change")


def _require_caches(source: str, caches: Mapping[str, FileInfo]) -> None:
    """Raise ValueError for a path that is not a bytecode file of the source."""
    module = PurePosixPath(source)
    folder = module.parent / "__pycache__"
    for cache in map(PurePosixPath, caches):
        name = cache.name
        of_source = name.startswith(f"{module.stem}.") and name.endswith(".pyc")
        if cache.parent != folder or not of_source or not name.isprintable():
            raise ValueError("not a bytecode file of the source")
