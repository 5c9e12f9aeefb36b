"""Scratch environments: a folder, a virtual environment in it, and bash in both."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.helpers.records import write_wheel

SECONDS = 600
"""Time limit of a command, while other tests run."""

UV = Path(sys.executable).with_name("uv")

# Packages that a scratch environment installs itself.
OWN = re.compile(r"(sglang|pip|uv|agentcore_\w+|__editable__\w*|__pycache__)([-.]|$)")


@dataclass(frozen=True)
class Ran:
    """One finished command; `out` is its standard output and error together."""

    code: int
    out: str


@dataclass(frozen=True)
class Scratch:
    """A folder to work in, with a virtual environment that comes first on PATH."""

    folder: Path
    env: Mapping[str, str] = field(repr=False)

    @property
    def venv(self) -> Path:
        return self.folder / "venv"

    @property
    def python(self) -> Path:
        return self.venv / "bin/python"

    @property
    def site(self) -> Path:
        """The environment's site-packages."""
        [site] = self.venv.glob("lib/python3*/site-packages")
        return site

    def has_command(self, name: str) -> bool:
        """True if this command is installed in the environment."""
        return (self.venv / "bin" / name).exists()

    def run(self, script: str, *, shell: tuple[str, ...] = ("bash", "-e", "-c")) -> Ran:
        """Run a script in the folder, and wait for it."""
        done = subprocess.run(
            [*shell, script],
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
        )
        return Ran(done.returncode, done.stdout)

    def ok(self, script: str) -> str:
        """Run a script, which must exit with 0; return its output."""
        ran = self.run(script)
        assert ran.code == 0, f"{script}\n{ran.out}"
        return ran.out


def make_scratch(
    folder: Path, base: Path, env: Mapping[str, str], *, with_pip: bool = True
) -> Scratch:
    """Make an empty environment of the Python `base`, with pip or without."""
    (folder / "tools").mkdir(parents=True)
    for tool in (UV, UV.with_name("uvx")):
        (folder / "tools" / tool.name).symlink_to(tool)
    # Not the tests' own environment, which has this package and maybe an SGLang.
    others = [
        entry
        for entry in os.environ["PATH"].split(os.pathsep)
        if not (Path(entry) / "agentcore-patch").exists()
    ]
    scratch = Scratch(
        folder,
        {
            **os.environ,
            **env,
            "PATH": os.pathsep.join([f"{folder}/venv/bin", f"{folder}/tools", *others]),
            "VIRTUAL_ENV": str(folder / "venv"),
            "TMPDIR": str(folder),
        },
    )
    venv = scratch.venv
    # The standard library's venv takes seconds to unpack its pip.
    seed = ["--seed"] if with_pip else []
    subprocess.run(
        [UV, "venv", "--quiet", *seed, "--python", base, venv],
        check=True,
        capture_output=True,
    )
    return scratch


def rest_of(python: Path, folder: Path) -> Path:
    """Make a folder with links to an interpreter's packages, except `OWN`."""
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    told = subprocess.run(
        [python, "-c", code], capture_output=True, text=True, check=True
    )
    for entry in Path(told.stdout.strip()).iterdir():
        if not OWN.match(entry.name):
            (folder / entry.name).symlink_to(entry)
    return folder


def add_rest(scratch: Scratch, rest: Path) -> None:
    """Make everything in `rest` importable in an environment."""
    pth = scratch.site / "rest.pth"
    pth.write_text(f"import site; site.addsitedir({str(rest)!r})\n")


def repack(package: Path, info: Path, folder: Path) -> Path:
    """Build a wheel of a package folder and its metadata."""
    version = info.name.removeprefix("sglang-").removesuffix(".dist-info")
    files = {}
    with (info / "RECORD").open() as record:
        names = sorted(name for name, *_ in csv.reader(record))
    for name in names:
        if not name.startswith(("sglang/", f"{info.name}/")) or name.endswith(
            (".pyc", "/RECORD", "/INSTALLER", "/REQUESTED", "/direct_url.json")
        ):
            continue
        # The RECORD of an SGLang that is patched lists these; the package is a reverted copy.
        if name.startswith(("sglang/.agentcore-patch/", "sglang/srt/agentcore/")):
            continue
        home = package.parent if name.startswith("sglang/") else info.parent
        files[name] = (home / name).read_bytes()
    return write_wheel(folder, version, files)
