"""Read the list of files in a wheel's metadata."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import zipfile
from collections.abc import Mapping
from pathlib import Path


def record_hash(text: bytes) -> str:
    encoded = base64.urlsafe_b64encode(hashlib.sha256(text).digest()).decode()
    return f"sha256={encoded.rstrip('=')}"


def record(files: Mapping[str, bytes], version: str) -> str:
    """Return the RECORD of an SGLang with these files, by path in site-packages."""
    lines = io.StringIO()
    rows = csv.writer(lines, lineterminator="\n")
    rows.writerows((path, record_hash(text), len(text)) for path, text in files.items())
    rows.writerow((f"sglang-{version}.dist-info/RECORD", "", ""))
    return lines.getvalue()


def write_wheel(folder: Path, version: str, files: Mapping[str, bytes]) -> Path:
    """Write a wheel with these files, by path in site-packages, and their RECORD."""
    wheel = folder / f"sglang-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, content in files.items():
            archive.writestr(path, content)
        info = f"sglang-{version}.dist-info"
        archive.writestr(f"{info}/RECORD", record(files, version))
    return wheel


def metadata(version: str) -> str:
    return f"Metadata-Version: 2.4\nName: sglang\nVersion: {version}\n"


def write_dist_info(site: Path, version: str, files: Mapping[str, bytes]) -> Path:
    folder = site / f"sglang-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(metadata(version))
    (folder / "RECORD").write_text(record(files, version))
    return folder
