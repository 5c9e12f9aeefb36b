"""The metadata of an install, and the hashes that its wheel's RECORD has."""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from agentcore_patches.state.filesystem import read_bytes

_MOST_RECORD = 64 * 1024 * 1024


def dist_info_of(package: Path, search: Sequence[str]) -> tuple[Path | None, bool]:
    """The metadata folder of a package, and whether the install is editable."""
    for folder in _metadata_folders(package.parent):
        prefix = f"{package.name}/"
        if any(name.startswith(prefix) for name, _ in read_record(folder)):
            return folder, False
    for entry in search:
        for folder in _metadata_folders(Path(entry)):
            if (folder / "METADATA").is_file():
                return folder, True
    return None, False


def _metadata_folders(site: Path) -> list[Path]:
    return sorted(site.glob("sglang-*.dist-info"))


def read_record(dist_info: Path) -> Iterator[tuple[str, str]]:
    """Path and SHA-256 of each file in a RECORD; none if it is missing or damaged."""
    try:
        record = read_bytes(dist_info / "RECORD", follow=True, most=_MOST_RECORD)
    except FileNotFoundError:
        return
    lines = io.StringIO(record.decode("utf-8", errors="replace"), newline="")
    with suppress(csv.Error):
        for row in csv.reader(lines):
            if len(row) > 1 and row[1].startswith("sha256="):
                yield row[0], row[1]


def hex_digest(digest: str) -> str:
    encoded = digest.removeprefix("sha256=")
    try:
        return base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).hex()
    except ValueError:
        return "damaged"
