"""A small package for transactions alone, and how they are run on it."""

from __future__ import annotations

import importlib.util
import marshal
from pathlib import Path

from agentcore_patches.installs.install import Install
from agentcore_patches.state import transaction
from agentcore_patches.state.snapshot import Snapshot
from tests.helpers import trees
from tests.helpers.trees import Photograph

FIRST, SECOND, THIRD = "srt/first.py", "srt/deep/second.py", "srt/third.py"
ALL = (FIRST, SECOND, THIRD)
TRACES = "srt/agentcore/traces.py"
"""A file that SGLang does not have."""
FOLDER = ".agentcore-patch"
LOCK = f"{FOLDER}/lock"


def vanilla(path: str) -> bytes:
    return f"import os\n\nNAME = {path!r}\n".encode()


def patched(path: str, edition: str = "one") -> bytes:
    return vanilla(path) + f"EDITION = {edition!r}  # agentcore-patch: ours\n".encode()


def commit(install: Install, *paths: str, edition: str = "one") -> tuple[str, ...]:
    with transaction.locked(install) as work:
        work.originals.texts(paths)
        files = {path: patched(path, edition) for path in paths}
        return work.commit(files, patches=["ours"], tool_version=edition)


def revert(install: Install, *, force: bool = False) -> tuple[str, ...]:
    with transaction.locked(install) as work:
        return work.revert(force=force)


def recover(install: Install) -> tuple[Snapshot, str | None]:
    """Finish or undo a killed command; return the new state and a line about it."""
    with transaction.locked(install) as work:
        return work.snapshot, work.recovered


def read(install: Install, path: str) -> bytes:
    return (install.package / path).read_bytes()


def write(install: Install, path: str, text: bytes) -> None:
    (install.package / path).write_bytes(text)


def photograph(install: Install) -> Photograph:
    """Return all files below the package except the lock."""
    found = trees.photograph(install.package)
    found.pop(LOCK, None)
    return found


def compile_unchecked(source: Path, text: bytes) -> Path:
    """Write a bytecode file that an interpreter runs without checking its source."""
    cache = Path(importlib.util.cache_from_source(str(source)))
    cache.parent.mkdir(exist_ok=True)
    code = marshal.dumps(compile(text, str(source), "exec"))
    cache.write_bytes(
        importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + bytes(8) + code
    )
    return cache
