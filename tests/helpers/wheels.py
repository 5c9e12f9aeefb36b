"""Files of released SGLang wheels: downloaded once; only needed files are kept."""

from __future__ import annotations

import csv
import io
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import filelock
import platformdirs

from tests.helpers.records import record_hash, write_dist_info

WHEEL_PYTHON = "3.11"
"""From v0.5.11 on there is a wheel for each Python; their Python files are the same."""

VERSION_FILES = ("__init__.py", "_version.py", "version.py")

# Files that tests read later, fetched together with the first ones, since each
# download is of the whole wheel.
ALSO = re.compile(
    r"srt/(server_args|constants|environ|lora/lora_registry|model_executor/model_runner"
    r"|(arg_groups|configs|entrypoints|managers|mem_cache|parser|session"
    r"|utils|sampling|disaggregation|observability|multimodal)/.*)\.py|utils\.py"
)


def wheel_files(version: str, paths: Sequence[str]) -> Mapping[str, bytes]:
    """Return files of a release's wheel, by path below `sglang`.

    A path that the wheel does not have is left out.
    """
    folder = cached(version)
    folder.mkdir(parents=True, exist_ok=True)
    known = _record(folder)
    if not known or any(p in known and not (folder / p).exists() for p in paths):
        with filelock.FileLock(f"{folder}.lock"):
            _download(version, folder, paths)
        _record.cache_clear()
        known = _record(folder)
    files = {path: (folder / path).read_bytes() for path in paths if path in known}
    for path, text in files.items():
        assert record_hash(text) == known[path], f"{folder / path} is not the wheel's"
    return files


def cached(version: str) -> Path:
    return platformdirs.user_cache_path("agentcore-patches") / f"sglang-{version}"


def make_install(version: str, site: Path, paths: Sequence[str]) -> Path:
    """Make an install of a release below `site`, of these files and what they import.

    Returns: its package folder.
    """
    package = site / "sglang"
    wheel_files(version, VERSION_FILES)  # This fetches the record.
    also = filter(ALSO.fullmatch, _record(cached(version)))
    files = wheel_files(version, [*paths, *VERSION_FILES, *also])
    for path, text in files.items():
        (package / path).parent.mkdir(parents=True, exist_ok=True)
        (package / path).write_bytes(text)
    inside = {f"sglang/{path}": text for path, text in files.items()}
    write_dist_info(site, version, inside)
    return package


def _download(version: str, folder: Path, paths: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        command = [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"),
            *("--disable-pip-version-check", "--only-binary=:all:"),
            *("--python-version", WHEEL_PYTHON),
            *("--dest", scratch, f"sglang=={version}"),
        ]
        subprocess.run(command, check=True, capture_output=True, env=_outside())
        [wheel] = Path(scratch).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            [record] = [
                name for name in archive.namelist() if name.endswith("info/RECORD")
            ]
            for name in archive.namelist():
                path = name.removeprefix("sglang/")
                if path in (*paths, *VERSION_FILES) or ALSO.fullmatch(path):
                    _write(folder / path, archive.read(name))
            _write(folder / "RECORD", archive.read(record))


def _write(file: Path, content: bytes) -> None:
    """Write a file atomically: other processes read the cache, too."""
    file.parent.mkdir(parents=True, exist_ok=True)
    making = file.with_name(f"{file.name}.{os.getpid()}")
    making.write_bytes(content)
    making.replace(file)


@cache
def _record(folder: Path) -> Mapping[str, str]:
    """Return the hash of each Python file of the package, by path below `sglang`."""
    try:
        text = (folder / "RECORD").read_text("utf-8")
    except FileNotFoundError:
        return {}
    return {
        name.removeprefix("sglang/"): digest
        for name, digest, *_ in csv.reader(io.StringIO(text))
        if name.startswith("sglang/") and name.endswith(".py")
    }


def _outside() -> dict[str, str]:
    """Return the environment without settings of an editor or a Python hook."""
    return {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
