"""The servers that the live tests run on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from agentcore_verify.server import Server

MODES: dict[str, tuple[str, ...]] = {
    "default": (),
    "stream-output": ("--stream-output",),
    "stream-interval": ("--stream-interval", "4"),
    "two-workers": ("--tokenizer-worker-num", "2"),
    "two-workers-stream-output": ("--tokenizer-worker-num", "2", "--stream-output"),
    "reasoning": ("--reasoning-parser", "deepseek-r1"),
}
"""The modes of the server in which everything promised must hold."""

# Appended to SGLang's sampler in the tests' copies of it: one engine step takes this
# long while the file is there, so that a test can do something in the middle of it.
THROTTLE = """

import os as _os, time as _time

_forward = Sampler.forward

def _throttled(self, *args, **kwargs):
    if _os.path.exists({flag!r}):
        _time.sleep({seconds})
    return _forward(self, *args, **kwargs)

Sampler.forward = _throttled
"""


@dataclass(frozen=True)
class Trees:
    """Copies of SGLang side by side; each value is the folder that holds `sglang`."""

    vanilla: Path
    patched: Path
    throttle: Path
    """File that slows both down while it exists."""


class Launch(Protocol):
    """Starts a server on a tree; a context manager that ends it."""

    def __call__(self, tree: Path, *args: str) -> Server: ...
