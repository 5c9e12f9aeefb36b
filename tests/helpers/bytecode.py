"""Compiled modules of SGLang, made once and given to every copy of it."""

from __future__ import annotations

import filecmp
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from agentcore_verify import cpu

# What a server imports, and what its scheduler imports to find the class of a model.
IMPORTS = """
import sglang.srt.entrypoints.http_server, sglang.srt.managers.scheduler
import sglang.srt.models.registry
"""


@dataclass(frozen=True)
class Bytecode:
    """A folder in which all processes of a run keep compiled modules.

    Python puts a module's file there below the path of its source, so a copy of SGLang
    has none at first: it would compile for 15 s when it is first started.
    """

    folder: Path
    python: Path
    installed: Path
    """The `sglang` package of `python`, whose modules are compiled once."""

    @property
    def env(self) -> Mapping[str, str]:
        """Environment of a Python that uses the folder."""
        return {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(self.folder)}

    def give_to(self, package: Path) -> None:
        """Give a copy of the installed package what was compiled from that one.

        These are links: Python replaces a file that it compiles again, and so in one
        folder alone. It goes by time and size of the source, so files that are equal
        are given the time of the installed ones.
        """
        made = self._compiled()
        for file in package.rglob("*.py"):
            original = self.installed / file.relative_to(package)
            if original.exists() and filecmp.cmp(original, file, shallow=False):
                times = original.stat()
                os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
        shutil.copytree(made, self._place(package), copy_function=os.link)

    def _compiled(self) -> Path:
        """Where the installed package's modules are; compiles them if nobody has."""
        place = self._place(self.installed)
        with FileLock(self.folder.with_suffix(".lock")):
            if not place.exists():
                path = os.pathsep.join([str(self.installed.parent), str(cpu.SITE)])
                subprocess.run(
                    [self.python, "-c", IMPORTS],
                    env={**os.environ, **cpu.ENV, **self.env, "PYTHONPATH": path},
                    capture_output=True,
                    check=True,
                )
        return place

    def _place(self, package: Path) -> Path:
        return self.folder / package.relative_to("/")
