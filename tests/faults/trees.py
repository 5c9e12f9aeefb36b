"""A small SGLang package with everything that makes replacing files hard."""

from __future__ import annotations

import importlib.util
import marshal
import os
import py_compile
import shutil
from pathlib import Path

from agentcore_patches.installs.install import Install
from agentcore_patches.state import transaction
from tests.helpers.records import metadata, write_dist_info, write_wheel

VERSION = "0.5.9"
DIST_INFO = f"sglang-{VERSION}.dist-info"

IO_STRUCT = "srt/managers/io_struct.py"
MANAGER = "srt/managers/tokenizer_manager.py"
PROTOCOL = "srt/entrypoints/openai/protocol.py"
SERVING = "srt/entrypoints/openai/serving_chat.py"
SOURCES = (IO_STRUCT, MANAGER, PROTOCOL, SERVING)

# Created files, in folders that the original does not have either.
TRACES = "srt/agentcore/traces.py"
PROMPTS = "srt/agentcore/chat/prompts.py"
CREATED = (TRACES, PROMPTS)

# The files of two selections, in writing order. SGLang's own: one leaves, one stays,
# one comes. Created files: one stays, one comes.
SELECTIONS = {
    "apply": (TRACES, IO_STRUCT, MANAGER, PROTOCOL),
    "upgrade": (TRACES, PROMPTS, MANAGER, PROTOCOL, SERVING),
}


def text(path: str, edition: str) -> bytes:
    """Return a module that names its file and edition; all editions have one length."""
    return f'MARK = "{path} {edition:8}"\n{"# padding" * 500}\n'.encode()


def expected(action: str) -> dict[str, bytes]:
    """Return the sources in the state after an action."""
    vanilla = {path: text(path, "vanilla") for path in SOURCES}
    return vanilla | {path: text(path, action) for path in SELECTIONS.get(action, ())}


def build(root: Path) -> Path:
    """Make the tree below `root` and return the package folder.

    One source is a hard link and one a symbolic link into a cache, as uv makes them;
    bytecode comes checked by time and not checked at all, for two interpreters.
    """
    package, cache = root / "site" / "sglang", root / "cache"
    cache.mkdir(parents=True)
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "_version.py").write_text('__version__ = "0.5.9"\n')
    files = {path: text(path, "vanilla") for path in SOURCES}
    for path, vanilla in files.items():
        source = package / path
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_bytes(vanilla)
        os.utime(source, (1_600_000_000, 1_600_000_000))
    write_dist_info(package.parent, VERSION, files)
    (package / IO_STRUCT).chmod(0o640)
    os.link(package / IO_STRUCT, cache / "io_struct.py")
    (package / MANAGER).rename(cache / "tokenizer_manager.py")
    (package / MANAGER).symlink_to("../../../../cache/tokenizer_manager.py")
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    for path, optimization, mode in (
        (PROTOCOL, "", unchecked),
        (PROTOCOL, "1", py_compile.PycInvalidationMode.TIMESTAMP),
        (SERVING, "", py_compile.PycInvalidationMode.TIMESTAMP),
        (MANAGER, "", unchecked),
    ):
        file = str(package / path)
        compiled = importlib.util.cache_from_source(file, optimization=optimization)
        py_compile.compile(file, compiled, invalidation_mode=mode)
    return package


def copy(package: Path, root: Path) -> Path:
    """Copy the tree together with its cache."""
    old = package.parent.parent
    shutil.copytree(old, root, symlinks=True)
    copied = root / "site" / "sglang"
    if (package / IO_STRUCT).samefile(old / "cache" / "io_struct.py"):
        (root / "cache" / "io_struct.py").unlink()
        os.link(copied / IO_STRUCT, root / "cache" / "io_struct.py")
    return copied


def install_of(package: Path, version: str = "0.5.9") -> Install:
    dist_info = package.with_name(DIST_INFO)
    return Install(package, version, "0.5.9", "a test", False, dist_info)


def run(package: Path, action: str) -> str | None:
    """Run `apply`, `upgrade`, `revert` or `recover`; return what it repaired first."""
    with transaction.locked(install_of(package)) as work:
        if action == "revert":
            work.revert()
        elif action in SELECTIONS and not work.snapshot.holds([action], "1"):
            paths = SELECTIONS[action]
            work.originals.texts(paths)
            files = {path: text(path, action) for path in paths}
            work.commit(files, patches=[action], tool_version="1")
        return work.recovered


def texts(package: Path) -> dict[str, bytes]:
    """Return the current sources and created files."""
    return {
        path: (package / path).read_bytes()
        for path in (*SOURCES, *CREATED)
        if path in SOURCES or (package / path).exists()
    }


def stale_bytecode(package: Path) -> list[str]:
    """Return the bytecode files of other sources that an interpreter would run."""
    found = []
    for path in texts(package):
        source = package / path
        status = source.stat()
        for cache in source.parent.glob(f"__pycache__/{source.stem}.*.pyc"):
            raw = cache.read_bytes()
            flags, seconds, size = memoryview(raw[4:16]).cast("I")
            current = (int(status.st_mtime), status.st_size) == (seconds, size)
            runs = current if flags == 0 else flags == 1
            if runs and marshal.loads(raw[16:]).co_consts[0].encode() not in (
                source.read_bytes()
            ):
                found.append(str(cache))
    return found


def make_wheel(root: Path) -> Path:
    """A wheel of the small SGLang, with the hashes that a RECORD has."""
    files = {f"sglang/{path}": text(path, "vanilla") for path in SOURCES}
    files["sglang/__init__.py"] = b""
    files["sglang/_version.py"] = b'__version__ = "0.5.9"\n'
    files[f"{DIST_INFO}/METADATA"] = metadata(VERSION).encode()
    files[f"{DIST_INFO}/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    return write_wheel(root, VERSION, files)
