"""Makes the pictures of the README from what the command prints.

    python docs/pictures.py VENV

VENV is made with a copy of this interpreter's SGLang, and removed again; the pictures
name it.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
from pathlib import Path

from rich.console import Console

from agentcore_patches import revert
from agentcore_patches.install import find
from agentcore_patches.patches.versions import SUPPORTED_VERSIONS
from agentcore_verify.report import export_svg

HERE = Path(__file__).parent
WIDTH = 100


def run(venv: Path, *arguments: str) -> str:
    """What the command prints, run by the environment's Python."""
    return subprocess.run(
        [venv / "bin/python", "-m", "agentcore_patches", *arguments],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    ).stdout


def draw(file: Path, command: str, output: str) -> None:
    """A picture of a terminal in which a command was run."""
    terminal = Console(file=io.StringIO(), record=True, width=WIDTH, highlight=False)
    terminal.print(f"$ {command}\n", style="bold", markup=False)
    terminal.print(output, markup=False)
    file.write_text(export_svg(terminal, "agentcore-patch"))


def main(venv: Path) -> None:
    package = find(supported=SUPPORTED_VERSIONS).package
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    try:
        [site] = venv.glob("lib/python*/site-packages")
        shutil.copytree(package, site / "sglang")
        for info in package.parent.glob("sglang-*.dist-info"):
            shutil.copytree(info, site / info.name)
        (site / "rest.pth").write_text(
            f"import site; site.addsitedir({str(package.parent)!r})\n"
        )
        revert(sglang_dir=site / "sglang")
        draw(HERE / "apply.svg", "agentcore-patch apply", run(venv, "apply"))
        run(venv, "verify", "--model", "scripted", "--svg", str(HERE / "verify.svg"))
    finally:
        shutil.rmtree(venv)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
