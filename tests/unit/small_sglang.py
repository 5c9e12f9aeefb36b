"""A small SGLang with a RECORD, and a small core and extra for it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentcore_patches import api
from agentcore_patches.edits import AddField, Edit, Insert
from tests.helpers.records import write_dist_info

MODELS = "srt/models.py"
SERVING = "srt/serving.py"
ENGINE = "srt/engine.py"

SOURCES = {
    "version.py": b'__version__ = "0.5.9"\n',
    MODELS: b"class Answer:\n    text: str\n",
    SERVING: b"def answer(model):\n    text = model()\n    return text\n",
    ENGINE: b"class Engine:\n    text: str\n",
    "srt/other.py": b"",
}

EDITS: dict[str, tuple[Edit, ...]] = {
    "core": (
        AddField(MODELS, "Answer", "ids: list = None", note="the IDs"),
        Insert(
            SERVING, "answer", "text.ids = model.ids", before="return text", note="IDs"
        ),
    ),
    "beta": (AddField(ENGINE, "Engine", "beta: int = 0", note="beta"),),
}


def build(
    site: Path, version: str = "0.5.9", sources: Mapping[str, bytes] = SOURCES
) -> Path:
    """Make the package and its metadata in a folder, like a wheel."""
    package = site / "sglang"
    for path, source in sources.items():
        file = package / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(source)
    files = {f"sglang/{path}": source for path, source in sources.items()}
    write_dist_info(site, version, files)
    return package


def kill_apply(package: Path, renaming: str) -> None:
    """Kill apply in a child process just before it renames a file to `renaming`."""

    def die(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "os.rename" and Path(arguments[1]).name == renaming:
            os._exit(9)

    child = os.fork()
    if child == 0:
        try:
            sys.addaudithook(die)
            api.apply(sglang_dir=package)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
