"""A small SGLang with a RECORD, and two small patches for it."""

from __future__ import annotations

import base64
import hashlib
import os
import sys
from pathlib import Path
from typing import Any

from agentcore_patches import api
from agentcore_patches.edits import AddField, Edit, Insert

MODELS = "srt/models.py"
SERVING = "srt/serving.py"
UNTOUCHED = "srt/engine.py"

SOURCES = {
    "version.py": b'__version__ = "0.5.9"\n',
    MODELS: b"class Answer:\n    text: str\n",
    SERVING: b"def answer(model):\n    text = model()\n    return text\n",
    UNTOUCHED: b"ENGINE = 1\n",
}

_IDS = AddField(MODELS, "Answer", "ids: list = None", note="the IDs")
EDITS: dict[str, tuple[Edit, ...]] = {
    "alpha": (_IDS,),
    "beta": (
        _IDS,
        Insert(
            SERVING, "answer", "text.ids = model.ids", before="return text", note="IDs"
        ),
    ),
}


def build(site: Path) -> Path:
    """Make the package and its metadata, as a wheel does, in a folder."""
    package = site / "sglang"
    record = []
    for path, source in SOURCES.items():
        file = package / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(source)
        digest = base64.urlsafe_b64encode(hashlib.sha256(source).digest())
        record.append(
            f"sglang/{path},sha256={digest.decode().rstrip('=')},{len(source)}"
        )
    metadata = site / "sglang-0.5.9.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Name: sglang\nVersion: 0.5.9\n")
    (metadata / "RECORD").write_text("\n".join(record))
    return package


def kill_apply(package: Path, renaming: str) -> None:
    """Have a process die when apply is about to rename something to `renaming`."""

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
