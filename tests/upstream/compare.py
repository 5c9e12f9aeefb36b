"""`make upstream`: SGLang's own unit tests on stock and on patched SGLang.

The tests come from a checkout of SGLang or of a fork. They run twice on the CPU: on a
copy of an interpreter's SGLang, and on a patched copy. The output has each test whose
outcome differs; the run fails if a difference is not in `accepted.py`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

from agentcore_patches import apply, revert
from agentcore_patches.installs.install import find
from agentcore_verify import cpu
from tests.helpers.servers import release_of
from tests.upstream.accepted import ACCEPTED

TESTS = (
    "registered/unit/entrypoints/**/test_*.py",
    "registered/unit/managers/**/test_*.py",
    # Their folder up to 0.5.9.
    "registered/openai_server/basic/test_protocol.py",
    "registered/openai_server/basic/test_serving_*.py",
    "registered/scheduler/test_prefill_adder.py",
)
"""Unit tests of what patches change, below `test` in a checkout."""

# At the end of the path, so that SGLang's own dependencies come first.
_RUN_PYTEST = "import sys; sys.path.append(sys.argv.pop(1)); import pytest; sys.exit(pytest.main())"

SKIPPED = "skipped"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path, help="a checkout of SGLang or of a fork")
    parser.add_argument(
        "--python",
        type=Path,
        default=Path(sys.executable),
        help="an interpreter with the SGLang to test",
    )
    options = parser.parse_args()
    # Not resolved: an environment's interpreter is a link.
    python = options.python.absolute()
    folder = (options.checkout / "test").resolve()
    tests = find_tests(folder)
    if not tests:
        parser.error(f"{folder} has none of these files: {', '.join(TESTS)}")
    with tempfile.TemporaryDirectory(prefix="agentcore-upstream-") as scratch:
        stock, patched = _run_both(python, folder, tests, Path(scratch))
    print(f"SGLang {release_of(python)}, {len(tests)} files of {folder}")
    for name, outcomes in (("stock", stock), ("patched", patched)):
        counts = Counter(map(kind_of, outcomes.values()))
        said = ", ".join(f"{count} {kind}" for kind, count in counts.most_common())
        print(f"{name:8} {said}")
    differing = find_differing(stock, patched)
    n_refused = 0
    for test in differing:
        reason = find_reason(test, patched.get(test))
        n_refused += reason is None
        print(f"{'accepted' if reason else 'DIFFERS'}: {test}")
        print(
            f"  stock {kind_of(stock.get(test))}, patched {kind_of(patched.get(test))}"
        )
        print(f"  {reason or patched.get(test)}")
    n_accepted = len(differing) - n_refused
    print(f"{len(differing)} differences, of which {n_accepted} are accepted")
    return int(n_refused > 0 or "" not in stock.values())


def find_tests(folder: Path) -> list[Path]:
    """Return the files with unit tests in the folder `test` of a checkout."""
    return sorted(file for pattern in TESTS for file in folder.glob(pattern))


def kind_of(outcome: str | None) -> str:
    """Name the kind of an outcome: a failure's text, or as `read_outcomes` says."""
    return {None: "missing", "": "passed", SKIPPED: SKIPPED}.get(outcome, "failed")


def find_differing(stock: Mapping[str, str], patched: Mapping[str, str]) -> list[str]:
    """Return the tests of which two runs have outcomes of different kinds."""
    return [
        test
        for test in sorted({*stock, *patched})
        if kind_of(stock.get(test)) != kind_of(patched.get(test))
    ]


def find_reason(test: str, outcome: str | None) -> str | None:
    """Return why a test may fail on patched SGLang like this; None if it may not."""
    for accepted in ACCEPTED:
        if test.endswith(f".{accepted.test}") and accepted.says in (outcome or ""):
            return accepted.reason
    return None


def read_outcomes(report: str) -> dict[str, str]:
    """Return what a JUnit report says of each test.

    A failure's text, `SKIPPED`, or nothing if the test passed each time.
    """
    outcomes: dict[str, str] = {}
    for case in ElementTree.fromstring(report).iter("testcase"):
        test = f"{case.get('classname')}.{case.get('name')}".lstrip(".")
        outcomes.setdefault(test, "")
        for part in case:
            if part.tag in ("failure", "error"):
                outcomes[test] = f"{part.get('message') or ''}\n{part.text or ''}"
            elif part.tag == "skipped":
                outcomes[test] = outcomes[test] or SKIPPED
    return outcomes


def _run_both(
    python: Path, folder: Path, tests: Sequence[Path], scratch: Path
) -> tuple[dict[str, str], dict[str, str]]:
    """Run the tests on stock and on patched SGLang."""
    uv = Path(sys.executable).with_name("uv")
    site = scratch / "pytest"
    install = (uv, "pip", "install", "--quiet", "--python", python, "--target", site)
    packages = ("pytest", "pytest-asyncio")
    subprocess.run([*install, *packages], check=True)
    package = find(python=python).package
    trees = scratch / "stock", scratch / "patched"
    for tree in trees:
        shutil.copytree(package, tree / "sglang")
        revert(sglang_dir=tree / "sglang")
    apply(sglang_dir=trees[1] / "sglang", extras=["all"])
    stock, patched = (_run(python, site, tree, folder, tests) for tree in trees)
    return stock, patched


def _run(
    python: Path, site: Path, tree: Path, folder: Path, tests: Sequence[Path]
) -> dict[str, str]:
    report = tree / "report.xml"
    env = {
        **os.environ,
        **cpu.ENV,
        "PYTHONPATH": os.pathsep.join(map(str, (tree, cpu.SITE))),
        # Leave nothing in the checkout.
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    # SGLang's tests take their ports from its first digit.
    del env["CUDA_VISIBLE_DEVICES"]
    options = (
        "--quiet",
        f"--rootdir={folder}",
        "--continue-on-collection-errors",
        *("-p", "no:cacheprovider"),
        # Longer tracebacks take minutes for tests with thousands of failed subtests.
        "--tb=native",
        f"--junit-xml={report}",
    )
    command: list[str | Path] = [python, "-c", _RUN_PYTEST, site, *options, *tests]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    # 1: tests failed.
    if done.returncode not in (0, 1):
        print(done.stdout[-8000:], done.stderr[-4000:], sep="\n")
        raise SystemExit(f"pytest exited with code {done.returncode}")
    return read_outcomes(report.read_text())


if __name__ == "__main__":
    sys.exit(main())
