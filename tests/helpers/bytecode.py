"""Compiled modules of SGLang, made once and copied to every copy of SGLang."""

from __future__ import annotations

import filecmp
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agentcore_verify import cpu
from tests.helpers.once import once

# Imports the modules of a server and of its scheduler's model registry, and writes the
# names of those outside SGLang to a file. It leaves out modules that cannot be
# imported alone: submodules of a package whose import failed, as some do without a GPU,
# and modules in folders that another module put on the path, as setuptools does.
IMPORTS = """
import functools, importlib.machinery, itertools, sys

path = [*sys.path]

import sglang.srt.entrypoints.http_server, sglang.srt.managers.scheduler
import sglang.srt.models.registry

@functools.cache
def is_found(package):
    return importlib.machinery.PathFinder.find_spec(package, path)

with open(sys.argv[1], "w") as file:
    for name, module in sys.modules.items():
        spec = getattr(module, "__spec__", None)
        parents = itertools.accumulate(name.split("."), "{}.{}".format)
        whole = all(parent in sys.modules for parent in parents)
        found = whole and is_found(name.partition(".")[0])
        if spec and spec.name == name and found and not name.startswith("sglang"):
            print(name, file=file)
"""


@dataclass(frozen=True)
class Bytecode:
    """Python's compiled modules beside their sources.

    A copy of SGLang has none at first: it would compile for 15 s when it is first
    started.
    """

    dependencies: Path
    """File for the names of modules other than SGLang's."""
    python: Path
    installed: Path
    """The `sglang` package of `python`, whose modules are compiled once."""

    @property
    def env(self) -> Mapping[str, str]:
        return {"PYTHONDONTWRITEBYTECODE": ""}

    def give_to(self, package: Path) -> None:
        """Copy the bytecode of the installed package to a copy of the package.

        Python compares time and size of the source, so equal files get the installed
        files' time.
        """
        self.compile()
        for file in package.rglob("*.py"):
            original = self.installed / file.relative_to(package)
            if original.exists() and filecmp.cmp(original, file, shallow=False):
                times = original.stat()
                os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
        # A server running there may write more bytecode meanwhile.
        unfinished = shutil.ignore_patterns("*.pyc.*")
        for made in self.installed.rglob("__pycache__"):
            if (folder := package / made.relative_to(self.installed)).parent.exists():
                shutil.copytree(made, folder, ignore=unfinished, dirs_exist_ok=True)

    def compile(self) -> Path:
        """Compile the modules that a server imports, once.

        Returns the file `dependencies`, with a name a line, in order.
        """

        def make(names: Path) -> None:
            path = os.pathsep.join([str(self.installed.parent), str(cpu.SITE)])
            subprocess.run(
                [self.python, "-c", IMPORTS, names],
                env={**os.environ, **cpu.ENV, **self.env, "PYTHONPATH": path},
                capture_output=True,
                check=True,
            )

        return once(self.dependencies, make)
