"""Read recorded turns line by line, so that memory does not grow with the file."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

from agentcore_patches.errors import AccessError, UsageError

from .readers import turns_of
from .readers.fields import BadRecord
from .turns import Turn

STDIN = "-"

ONE_OBJECT = "Write one JSON object per turn and line."

_SQLITE = b"SQLite format 3\0"


def turns_in(file: str) -> Iterator[tuple[str, Turn]]:
    """Yield place and turn for each turn in a file; raise AccessError or UsageError."""
    if file == STDIN:
        yield from _turns_in_stream(sys.stdin.buffer, "stdin")
        return
    try:
        with Path(file).open("rb") as stream:
            if stream.peek(len(_SQLITE))[: len(_SQLITE)] == _SQLITE:
                yield from _turns_in_database(file)
            else:
                yield from _turns_in_stream(stream, file)
    except OSError as error:
        raise AccessError(f"Cannot read {file}: {error.strerror}.") from error


def _turns_in_stream(stream: BinaryIO, name: str) -> Iterator[tuple[str, Turn]]:
    for number, line in enumerate(stream, 1):
        if line.strip():
            yield from _turns_in_line(line, f"{name}, line {number}")


def _turns_in_line(line: bytes | str, place: str) -> Iterator[tuple[str, Turn]]:
    try:
        record: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        why = str(error).partition(":")[0]
        if isinstance(error, json.JSONDecodeError):
            why = f"{error.msg} at character {error.pos + 1}"
        elif isinstance(error, RecursionError):
            why = "it is nested too deeply"
        if isinstance(line, bytes) and not line.endswith(b"\n"):
            raise UsageError(
                f"{place}, the last one, is cut off: {why}.",
                hint="Wait until the file is complete, or remove that line.",
            ) from error
        raise UsageError(f"{place} is not JSON: {why}.", hint=ONE_OBJECT) from error
    try:
        if not isinstance(record, dict):
            raise BadRecord("is not a JSON object")
        for turn in turns_of(record):
            yield place, turn
    except BadRecord as error:
        raise UsageError(
            f"{place} {error}.",
            hint="See `agentcore-patch docs audit` for the files that it reads.",
        ) from error


def _turns_in_database(file: str) -> Iterator[tuple[str, Turn]]:
    """Yield the traces in the database of rllm-model-gateway."""
    query = "SELECT data FROM traces ORDER BY created_at, rowid"
    try:
        database = sqlite3.connect(f"file:{quote(file)}?mode=ro", uri=True)
        try:
            for number, (data,) in enumerate(database.execute(query), 1):
                yield from _turns_in_line(data, f"{file}, row {number} of `traces`")
        finally:
            database.close()
    except (sqlite3.Error, TypeError) as error:
        raise UsageError(
            f"{file} is a SQLite database, but not one of rllm-model-gateway: {error}.",
        ) from error
