"""What is written down about an install: the record of its patches, and the journal.

Both are JSON files whose keys are the attributes of these classes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from agentcore_patches.files import FileInfo

_FORMAT = 1


@dataclass(frozen=True)
class FileRecord:
    """A patched file: the original, our text's SHA-256, the original's bytecode files.

    `original` is None for a file that we created.
    """

    original: FileInfo | None
    patched: str
    caches: Mapping[str, FileInfo]


@dataclass(frozen=True)
class Record:
    """What is in place: by which version of this package, which patches, which files."""

    tool_version: str
    sglang_version: str
    patches: tuple[str, ...]
    files: Mapping[str, FileRecord]

    def to_json(self) -> bytes:
        return _to_json(self)

    @classmethod
    def from_json(cls, text: bytes) -> Record:
        """Raises ValueError, KeyError, TypeError or AttributeError if it is damaged."""
        document = _from_json(text)
        return cls(
            tool_version=document["tool_version"],
            sglang_version=document["sglang_version"],
            patches=tuple(document["patches"]),
            files={
                _inside(path): FileRecord(
                    entry["original"] and FileInfo(**entry["original"]),
                    entry["patched"],
                    _file_infos(entry["caches"]),
                )
                for path, entry in document["files"].items()
            },
        )


@dataclass(frozen=True)
class Change:
    """A source and its bytecode files before and after; None: there is no such file."""

    path: str
    before: FileInfo | None
    after: FileInfo | None
    caches_before: Mapping[str, FileInfo]
    caches_after: Mapping[str, FileInfo]

    def reversed(self) -> Change:
        """The change that undoes this one."""
        return Change(
            self.path, self.after, self.before, self.caches_after, self.caches_before
        )


@dataclass(frozen=True)
class Journal:
    """What a command is about to do; `clears`: no record is left after it."""

    action: str
    changes: tuple[Change, ...]
    clears: bool

    def to_json(self) -> bytes:
        return _to_json(self)

    @classmethod
    def from_json(cls, text: bytes) -> Journal:
        """Raises ValueError, KeyError, TypeError or AttributeError if it is damaged."""
        document = _from_json(text)
        return cls(
            action=document["action"],
            changes=tuple(
                Change(
                    _inside(change["path"]),
                    change["before"] and FileInfo(**change["before"]),
                    change["after"] and FileInfo(**change["after"]),
                    _file_infos(change["caches_before"]),
                    _file_infos(change["caches_after"]),
                )
                for change in document["changes"]
            ),
            clears=document["clears"],
        )


def _to_json(value: Record | Journal) -> bytes:
    return json.dumps({"format": _FORMAT, **asdict(value)}, indent=1).encode()


def _from_json(text: bytes) -> Any:
    document = json.loads(text)
    if document["format"] != _FORMAT:
        raise ValueError(document["format"])
    return document


def _inside(path: str) -> str:
    if path.startswith("/") or ".." in path.split("/"):
        raise ValueError(path)
    return path


def _file_infos(documents: Mapping[str, Any]) -> dict[str, FileInfo]:
    return {_inside(path): FileInfo(**info) for path, info in documents.items()}
