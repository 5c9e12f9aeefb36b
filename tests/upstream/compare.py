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
from typing import NamedTuple
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

_SEVERITY = ("passed", "skipped", "failed", "error")


class Outcome(NamedTuple):
    """Outcome of a test: a word of `_SEVERITY`, or "missing"; and its message."""

    kind: str
    text: str = ""

    @property
    def summary(self) -> str:
        """Return the failure without its location."""
        return (self.text.strip().splitlines() or [""])[0]


MISSING = Outcome("missing")


class Difference(NamedTuple):
    """A test whose outcome differs between stock and patched SGLang."""

    test: str
    stock: Outcome
    patched: Outcome

    @property
    def reason(self) -> str | None:
        """Return why the difference is accepted, None if it is not."""
        for accepted in ACCEPTED:
            is_same = self.test.endswith(f".{accepted.test}")
            if is_same and accepted.says in self.patched.text:
                return accepted.reason
        return None


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
        counts = Counter(outcome.kind for outcome in outcomes.values())
        said = ", ".join(f"{counts[kind]} {kind}" for kind in _SEVERITY if counts[kind])
        print(f"{name:8} {said}")
    found = find_differences(stock, patched)
    for difference in found:
        print(describe(difference))
    refused = sum(difference.reason is None for difference in found)
    print(f"{len(found)} differences, of which {len(found) - refused} are accepted")
    has_passed = any(outcome.kind == "passed" for outcome in stock.values())
    return 0 if has_passed and not refused else 1


def find_tests(folder: Path) -> list[Path]:
    """Return the files with unit tests in the folder `test` of a checkout."""
    return sorted(file for pattern in TESTS for file in folder.glob(pattern))


def find_differences(
    stock: Mapping[str, Outcome], patched: Mapping[str, Outcome]
) -> list[Difference]:
    """Compare two runs of the same tests by the kind of their outcomes."""
    pairs = (
        Difference(test, stock.get(test, MISSING), patched.get(test, MISSING))
        for test in sorted({*stock, *patched})
    )
    return [pair for pair in pairs if pair.stock.kind != pair.patched.kind]


def describe(difference: Difference) -> str:
    """Return the lines to print about a difference."""
    test, stock, patched = difference
    lines = [f"{'accepted' if difference.reason else 'DIFFERS'}: {test}"]
    lines.append(f"  stock {stock.kind}, patched {patched.kind}: {patched.summary}")
    if difference.reason:
        lines.append(f"  {difference.reason}")
    return "\n".join(lines)


def read_outcomes(report: str) -> dict[str, Outcome]:
    """Return each test's outcome in a JUnit report, the worst if it has several."""
    outcomes: dict[str, Outcome] = {}
    for case in ElementTree.fromstring(report).iter("testcase"):
        test = f"{case.get('classname')}.{case.get('name')}".lstrip(".")
        found = [outcomes.get(test, Outcome("passed"))]
        for part in case:
            kind = {"failure": "failed"}.get(part.tag, part.tag)
            if kind in _SEVERITY:
                text = f"{part.get('message') or ''}\n{part.text or ''}"
                found.append(Outcome(kind, text))
        outcomes[test] = max(found, key=lambda outcome: _SEVERITY.index(outcome.kind))
    return outcomes


def _run_both(
    python: Path, folder: Path, tests: Sequence[Path], scratch: Path
) -> tuple[dict[str, Outcome], dict[str, Outcome]]:
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
) -> dict[str, Outcome]:
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
