"""The bytecode files of a source: where they are, and when Python would run them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from agentcore_patches.files import FileInfo, read

_SECOND_NS = 1_000_000_000


def bytecode_folder(source: Path) -> Path:
    """The folder of a source's bytecode files."""
    return source.parent / "__pycache__"


def bytecode_files(source: Path) -> list[Path]:
    """The bytecode files of a source, for all interpreters."""
    try:
        files = sorted(bytecode_folder(source).iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    stem = f"{source.stem}."
    return [
        file for file in files if file.match("*.pyc") and file.name.startswith(stem)
    ]


def read_bytecode(package: Path, path: str) -> dict[str, tuple[FileInfo, bytes]]:
    """The bytecode files of a source and their contents, by path below the package."""
    files = {file: read(file) for file in bytecode_files(package / path)}
    return {
        str(file.relative_to(package)): found for file, found in files.items() if found
    }


def could_run(bytecode: Path, source: FileInfo) -> bool:
    """Whether Python would run a bytecode file in place of this source (PEP 552)."""
    flags, mtime, size = _header(bytecode)
    if flags & 0b01:
        return not flags & 0b10
    seconds = source.mtime_ns // _SECOND_NS
    return (mtime, size) == (seconds & 0xFFFFFFFF, source.size & 0xFFFFFFFF)


def unused_mtime(source: Path, now_ns: int) -> int:
    """`now_ns`, or the next second (ns) that no bytecode file of the source records."""
    seconds = set()
    with suppress(FileNotFoundError):
        seconds.add(int(source.stat().st_mtime))
    for file in bytecode_files(source):
        with suppress(OSError):
            seconds.add(_header(file)[1])
    while now_ns // _SECOND_NS in seconds:
        now_ns += _SECOND_NS
    return now_ns


def _header(bytecode: Path) -> tuple[int, int, int]:
    """Flags, source time (s) and source size of a bytecode file."""
    with bytecode.open("rb") as stream:
        raw = stream.read(16)
    flags, mtime, size = (
        int.from_bytes(raw[at : at + 4], "little") for at in (4, 8, 12)
    )
    return flags, mtime, size
