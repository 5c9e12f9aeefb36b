"""CPU time of the command, whole process, against `import sglang` and a rewriter.

    python benchmarks/install.py [--quick] [--json FILE]

Measured twice: with the installer's bytecode (uv: none, pip: all) and none of this
package, and with bytecode of all modules. The commands run in turns, so that a busy
machine slows them alike; the first turn does not count. Ratios compare the medians. The
rewriter parses the files that `apply` edits with libcst, prints and compiles them, and
writes nothing: what any tool of this kind pays. Waiting for the disk is left out. Needs
SGLang in this interpreter; its install is copied, never changed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median

import report
from trees import ROOT, copies

from agentcore_patches import apply
from agentcore_patches.state.ownership import is_created

REWRITER = """
import sys
import click, libcst
for name in sys.argv[1:]:
    with open(name, "rb") as file:
        code = libcst.parse_module(file.read()).bytes
    compile(code, name, "exec", dont_inherit=True)
"""

# What SGLang runs as a plugin at the start of a server.
GUARD = """
import sys
sys.path.insert(0, sys.argv[1])
from agentcore_patches import plugin
plugin.register()
"""


def timed(env: Mapping[str, str], *command: str) -> float:
    """Run a command of this interpreter; return the seconds of CPU time it takes."""
    before = getrusage(RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, *command],
        env={**os.environ, **env},
        cwd="/",
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measured(
    vanilla: Path, patched: Path, turns: int, bytecode: str
) -> list[report.Row]:
    """One row for each command; `bytecode` is "as installed" or "all"."""
    fresh = vanilla.with_name("fresh")
    ours = vanilla.with_name("ours")
    env = {"PYTHONPATH": f"{ours}:{vanilla}", "PYTHONDONTWRITEBYTECODE": "1"}
    if bytecode == "all":
        env["PYTHONDONTWRITEBYTECODE"] = ""
        env["PYTHONPYCACHEPREFIX"] = str(vanilla.with_name("bytecode"))
    command = ("-m", "agentcore_patches")
    target = ("--sglang-dir", str(patched / "sglang"))
    edited = [
        str(vanilla / "sglang" / file.path)
        for file in apply(sglang_dir=vanilla / "sglang", dry_run=True).files
        if not is_created(file.path)
    ]
    times: dict[str, list[float]] = {}
    for _ in range(turns):
        shutil.copytree(vanilla, fresh)
        for name, line in (
            ("import sglang", ("-c", "import sglang")),
            ("rewriter", ("-c", REWRITER, *edited)),
            ("python -c pass", ("-c", "pass")),
            ("apply", (*command, "apply", "--sglang-dir", str(fresh / "sglang"))),
            ("apply, nothing to do", (*command, "apply", *target)),
            ("status", (*command, "status", *target)),
            ("guard", ("-c", GUARD, str(patched))),
        ):
            times.setdefault(name, []).append(timed(env, *line) * 1e3)
        shutil.rmtree(fresh)
    return [
        {
            "what": f"{name}, bytecode {bytecode}, ms",
            "command": (own := median(found[1:])),
            "to_import_sglang": own / median(times["import sglang"][1:]),
            "to_rewriter": own / median(times["rewriter"][1:]),
        }
        for name, found in times.items()
    ]


def main() -> None:
    options = report.options(__doc__)

    with copies() as (vanilla, patched):
        turns = 5 if options.quick else 15
        # Earlier runs may have left bytecode in the package itself.
        shutil.copytree(
            ROOT / "agentcore_patches",
            vanilla.with_name("ours") / "agentcore_patches",
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        rows = [
            row
            for bytecode in ("as installed", "all")
            for row in measured(vanilla, patched, turns, bytecode)
        ]
    report.show(
        "The command against `import sglang` and a rewriter", rows, options.json
    )


if __name__ == "__main__":
    main()
