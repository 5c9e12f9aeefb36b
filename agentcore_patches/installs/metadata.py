"""The metadata of an install, and the hashes that its wheel's RECORD has."""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from agentcore_patches.disk.filesystem import (
    FOLDER,
    draft_path,
    read,
    read_bytes,
    sync,
    write_draft,
)
from agentcore_patches.patches.paths import LANDING

_MOST_RECORD = 64 * 1024 * 1024


def dist_info_of(package: Path, search: Sequence[str]) -> tuple[Path | None, bool]:
    """Return the metadata folder of a package, and whether the install is editable."""
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
    """Yield path and SHA-256 of each file in a RECORD; nothing if it is missing or damaged."""
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


def list_added(dist_info: Path, package: str, paths: Iterable[str]) -> None:
    """Make these the only files of agentcore-patch in RECORD, with no hashes.

    pip and uv then remove them with the package. With no paths, RECORD is again what the
    installer wrote, to the byte and with its time.
    """
    record = dist_info / "RECORD"
    draft_path(record).unlink(missing_ok=True)
    file = read(record)
    if file is None or file.info.link is not None:
        return
    added_folders = tuple(
        f"{package}/{folder}/".encode() for folder in (FOLDER, LANDING)
    )
    lines = [
        line
        for line in file.text.splitlines(keepends=True)
        if not line.startswith(added_folders)
    ]
    added = "".join(f"{package}/{path},,\n" for path in paths).encode()
    # If the last line has no line end, the last added row has none either.
    text = b"".join(lines)
    if not file.text.endswith(b"\n"):
        text = text.removesuffix(b"\n")
        added = b"\n" + added.removesuffix(b"\n") if added else b""
    if text + added != file.text:
        write_draft(record, file.info, text + added, file.metadata)
        draft_path(record).replace(record)
        sync(dist_info)
