"""`make versions`: real servers of every supported family of SGLang releases.

For each release: make an environment, apply, verify in each mode of the server, run the
core of the live tests, check that no shared memory is left, revert, and compare every
byte. The output ends with a table, release by mode.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from agentcore_patches import apply, revert
from agentcore_patches.installs import install
from agentcore_patches.patches.releases import SUPPORTED_VERSIONS
from agentcore_verify.probe import SHARED_MEMORY
from tests.helpers.servers import MODES, arguments_of
from tests.helpers.trees import contents

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENTS = ROOT / "build" / "versions"

# Transformers 5.6.0, which these two pin, cannot import the `kernels` that pip resolves.
CONSTRAINTS: Mapping[str, tuple[str, ...]] = dict.fromkeys(
    ("0.5.11", "0.5.12", "0.5.12.post1"), ("kernels<0.13",)
)

# The index has only a stand-in for this, which downloads it from elsewhere. The CPU does
# not need it.
LEFT_OUT: Mapping[str, tuple[str, ...]] = dict.fromkeys(
    ("0.5.18", "0.5.19", "0.5.20", "0.5.21", "0.5.22"), ("cuda-tile",)
)

# The last release of each family; the others have the same code.
FAMILIES = tuple(
    version
    for version in SUPPORTED_VERSIONS
    if not any(other.startswith(f"{version}.post") for other in SUPPORTED_VERSIONS)
)

CORE = (
    "tests/live/test_token_ids.py",
    "tests/live/test_interruptions.py",
    "tests/live/test_prompts.py",
    "tests/live/test_fast_answers.py",
    "tests/live/test_unchanged.py",
    "tests/live/test_messages_and_responses.py",
    "tests/live/test_prefix.py",
    "tests/live/test_odd_tokenizers.py",
    "tests/live/test_patched_classes.py",
    "tests/live/test_not_finite.py",
    "tests/live/test_vllm_api.py",
    "tests/live/test_plugin.py",
)


@dataclass
class Row:
    """Findings on one release, by column."""

    version: str
    cells: dict[str, str] = field(default_factory=dict)
    failed: bool = False

    def note(self, column: str, passed: bool, text: str) -> None:
        self.cells[column] = text
        self.failed |= not passed
        print(f"{self.version:14} {column:26} {text}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("versions", nargs="*", metavar="VERSION")
    parser.add_argument("--keep", action="store_true", help="keep the environments")
    parser.add_argument(
        "--short",
        action="store_true",
        help="verify the newest release, or those named, in the default mode alone",
    )
    options = parser.parse_args()
    unknown = set(options.versions) - set(SUPPORTED_VERSIONS)
    if unknown:
        parser.error(f"not supported: {', '.join(sorted(unknown))}")
    modes = ["default"] if options.short else list(MODES)
    versions = options.versions or (FAMILIES[-1:] if options.short else FAMILIES)
    rows = []
    for version in versions:
        rows.append(_checked(version, modes, options))
        if not options.keep:
            shutil.rmtree(ENVIRONMENTS / version, ignore_errors=True)
    live = [] if options.short else ["live tests"]
    _print_table(rows, [*modes, *live, "shared memory", "revert"])
    return int(any(row.failed for row in rows))


def _checked(version: str, modes: Sequence[str], options: argparse.Namespace) -> Row:
    row = Row(version)
    python = environment_of(version)
    revert(python=python)  # A killed run leaves its environment patched.
    before = _sources(python)
    apply(python=python, extras=["all"])
    shared = _shared_memory()
    # Two at a time: a check often waits for its server, which leaves a core idle.
    args = [arguments_of(version, MODES[mode]) for mode in modes]
    with ThreadPoolExecutor(max_workers=2) as two:
        for mode, found in zip(
            modes, two.map(partial(_verified, python), args), strict=True
        ):
            row.note(mode, *found)
    if not options.short:
        row.note("live tests", *_live_tests(python))
    left = sorted(_shared_memory() - shared)
    row.note("shared memory", not left, f"LEFT: {left}" if left else "nothing left")
    revert(python=python)
    same = _sources(python) == before
    row.note("revert", same, "to the byte" if same else "NOT to the byte")
    return row


def environment_of(version: str) -> Path:
    """Return an interpreter with that release; uv links shared packages."""
    folder = ENVIRONMENTS / version
    python = folder / "bin" / "python"
    if not (folder / ".ready").exists():
        uv = Path(sys.executable).with_name("uv")
        _run(uv, "venv", "--quiet", "--clear", "--python", sys.executable, folder)
        overrides = folder / "overrides.txt"
        overrides.write_text(
            "".join(
                f"{name} ; sys_platform == 'never'\n"
                for name in LEFT_OUT.get(version, ())
            )
        )
        _run(
            *(uv, "pip", "install", "--quiet", "--python", python),
            *("--override", overrides),
            *(f"sglang=={version}", *CONSTRAINTS.get(version, ())),
        )
        (folder / ".ready").touch()
    return python


def _verified(python: Path, args: Sequence[str]) -> tuple[bool, str]:
    """Run verify on a server with these arguments; return success and counts."""
    began = time.monotonic()
    command = [
        *(sys.executable, "-m", "agentcore_patches", "verify", "--json"),
        *("--python", str(python), "--model", "scripted", "--", *args),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    try:
        report = json.loads(done.stdout)
        outcomes = [check["outcome"] for check in report["checks"]]
    except (ValueError, KeyError):
        print(done.stdout[-2000:], done.stderr[-4000:], sep="\n")
        return False, f"FAILED (exit {done.returncode})"
    counts = ", ".join(
        f"{count} {outcome}" for outcome, count in Counter(outcomes).most_common()
    )
    text = f"{counts} in {time.monotonic() - began:.0f} s"
    if done.returncode:
        print(json.dumps(report, indent=1))
        return False, f"FAILED: {text}"
    return True, text


def _live_tests(python: Path) -> tuple[bool, str]:
    """Run the core of the live tests; return success and their last line."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-m", ""),
            *("-p", "no:cacheprovider", *CORE),
        ],
        cwd=ROOT,
        env={**os.environ, "AGENTCORE_TEST_PYTHON": str(python)},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        print(done.stdout, done.stderr, sep="\n")
    last = (done.stdout.strip().splitlines() or ["no output"])[-1]
    return done.returncode == 0, last.strip("= ")


def _shared_memory() -> set[str]:
    """Return the names of SGLang's shared memory files."""
    found = SHARED_MEMORY.parent.glob(SHARED_MEMORY.name)
    return {file.name for file in found}


def _sources(python: Path) -> dict[str, bytes]:
    found = contents(install.find(python=python).package)
    return {path: text for path, text in found.items() if "__pycache__" not in path}


def _run(*command: str | Path) -> None:
    subprocess.run(command, check=True)


def _print_table(rows: Sequence[Row], columns: Sequence[str]) -> None:
    print("\n| SGLang | " + " | ".join(columns) + " |")
    print("|---" * (len(columns) + 1) + "|")
    for row in rows:
        cells = (row.cells.get(column, "not run") for column in columns)
        print(f"| {row.version} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    sys.exit(main())
