"""The real command with the real patches: killed at renames, and run concurrently."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import agentcore_patches
from agentcore_patches.installs.install import find
from agentcore_patches.patches import registry
from agentcore_patches.planning.plan import make_plan
from agentcore_patches.planning.selection import Selection
from agentcore_patches.state import transaction
from tests.faults import tracing
from tests.helpers import trees
from tests.helpers.planning import VERSION
from tests.helpers.trees import photograph
from tests.helpers.wheels import wheel_files

Make = Callable[[], Path]


@pytest.fixture(scope="module")
def wheel() -> Mapping[str, bytes]:
    """Original texts of all files that patches change, or that the planner reads."""
    selection = Selection(registry.names(), VERSION)
    texts = {**wheel_files(VERSION, selection.files)}
    others: dict[str, bytes] = {}

    def read(path: str) -> bytes | None:
        others.update(wheel_files(VERSION, [path]))
        return others.get(path)

    make_plan(texts, selection, read)
    return {**texts, **others}


@pytest.fixture
def make(wheel: Mapping[str, bytes], tmp_path: Path) -> Make:
    """Make packages with only these files, each in a separate folder."""
    numbers = iter(range(1000))

    def make() -> Path:
        package = tmp_path / str(next(numbers)) / "sglang"
        for path, text in wheel.items():
            (package / path).parent.mkdir(parents=True, exist_ok=True)
            (package / path).write_bytes(text)
        (package / "_version.py").write_text(f'__version__ = "{VERSION}"\n')
        return package

    return make


def command(package: Path, *words: str) -> list[str]:
    module = [sys.executable, "-m", "agentcore_patches", words[0]]
    return [*module, "--sglang-dir", str(package), "--json", *words[1:]]


def start(package: Path, *words: str) -> subprocess.Popen[str]:
    return tracing.start(*command(package, *words))


def contents(package: Path) -> dict[str, bytes]:
    """Return all files except agentcore-patch's own."""
    return {
        path: text
        for path, text in trees.contents(package).items()
        if "agentcore" not in path
    }


# Patches applied first, and the command that is killed.
STEPS: dict[str, tuple[list[str] | None, str]] = {
    "apply": (None, "apply"),
    "selection": (["token-ids"], "apply"),
    "revert": ([], "revert"),
}


@pytest.mark.parametrize("step", STEPS)
def test_the_next_command_repairs_what_a_killed_one_left_behind(
    step: str, make: Make, count: Counter[str]
) -> None:
    earlier, last = STEPS[step]
    model, original = make(), contents(make())
    if earlier is not None:
        agentcore_patches.apply(sglang_dir=model, only=earlier)
    old = contents(model)
    numbers = iter(range(1000))

    def copy() -> Path:
        package = model.parent / str(next(numbers)) / "sglang"
        return Path(shutil.copytree(model, package))

    package = copy()
    calls = tracing.calls(package, *command(package, last)[3:])
    new = contents(package)
    assert old != new

    def kill(call: tracing.Call) -> str:
        package = copy()
        tracing.kill_at(call, package, *command(package, last)[3:])
        seen = photograph(package)
        told = start(package, "status")
        pending = json.loads(told.communicate()[0])["pending"]
        journals = list((package / ".agentcore-patch").glob("*ed.json"))
        assert pending or not journals, call
        assert told.returncode == 0
        assert photograph(package) == seen
        install = find(package)
        with transaction.locked(install) as work:
            assert contents(package) in (old, new), call
        agentcore_patches.revert(sglang_dir=package)
        assert contents(package) == original, call
        assert not (package / ".agentcore-patch").exists()
        return str(work.recovered)

    places = [
        call
        for call in calls
        if call.kind.startswith("rename")
        and ("srt/" in call.line or "json" in call.line or "state" in call.line)
    ]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        said = Counter(pool.map(kill, places))
    assert sum("finished an interrupted" in line for line in said.elements()) > 2
    assert sum("undid an interrupted" in line for line in said.elements()) > 0
    count["kills of the real command, each mended by the next one"] += len(places)


def test_only_one_of_32_concurrent_applies_does_the_work(
    make: Make, count: Counter[str]
) -> None:
    package = make()
    crowd = [start(package, "apply") for _ in range(32)]
    changed = 0
    for process in crowd:
        told, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
        assert "Traceback" not in errors
        changed += json.loads(told)["changed"]
    assert changed == 1
    count["real commands that ran at once"] += 32
