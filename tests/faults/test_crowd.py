"""Many commands at once on one install."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from agentcore_patches.disk.filesystem import FOLDER
from tests.faults import tracing, trees
from tests.helpers.planning import VERSION
from tests.helpers.trees import photograph
from tests.helpers.wheels import make_install
from tests.sglang_sources.releases import changed_files


def all_at_once(package: Path, actions: Sequence[str]) -> list[tuple[int, str]]:
    """Run a command for each action, all at once; return exit codes and errors."""
    gate = package.parents[1] / "gate"
    gate.touch()
    with gate.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        started = [
            tracing.start("flock", "--shared", gate, *tracing.command(package, action))
            for action in actions
        ]
    ended = []
    for process in started:
        _, errors = process.communicate(timeout=120)
        ended.append((process.returncode, errors))
    gate.unlink()
    return ended


def edition_of(package: Path) -> str:
    """Return the edition of the sources; fail if they are of several."""
    marks = {
        path: text.split(b'"')[1].split()[-1].decode()
        for path, text in trees.texts(package).items()
    }
    chosen = trees.SELECTIONS["apply"]
    editions = {marks.get(path, "vanilla") for path in chosen}
    assert len(editions) == 1, marks
    return editions.pop()


@pytest.mark.parametrize("attempt", range(3))
def test_16_applies_and_16_reverts_leave_one_complete_edition(
    attempt: int, tmp_path: Path
) -> None:
    package = trees.build(tmp_path)
    first = photograph(tmp_path)

    ended = all_at_once(package, ["apply", "revert"] * 16)

    assert ended == [(0, "")] * 32
    if edition_of(package) == "vanilla":
        assert photograph(tmp_path) == first
    assert trees.stale_bytecode(package) == []
    trees.run(package, "revert")
    assert photograph(tmp_path) == first


# Files in the state folder at stages of a command's work.
POINTS = ("lock", "store", "prepared.json", "committed.json", "state.json")


def test_killed_commands_do_not_block_the_others(tmp_path: Path) -> None:
    package = trees.build(tmp_path)
    first = photograph(tmp_path)
    kills = 0
    for turn in range(30):
        point = package / FOLDER / POINTS[turn % len(POINTS)]
        crowd = [
            tracing.start(*tracing.command(package, action))
            for action in ("apply", "revert", "upgrade")
        ]
        victim = kill_at_work(crowd, package / FOLDER / "lock", point)
        for process in crowd:
            _, errors = process.communicate(timeout=60)
            assert "Traceback" not in errors
            assert process.returncode == 0 or process is victim, errors
        kills += victim is not None and victim.returncode != 0
    assert kills > 10
    trees.run(package, "revert")
    assert photograph(tmp_path) == first


def kill_at_work(
    crowd: Sequence[subprocess.Popen[str]], lock: Path, point: Path
) -> subprocess.Popen[str] | None:
    """Kill the lock's holder once a file exists; return None if all have exited."""
    while any(process.poll() is None for process in crowd):
        with suppress(OSError):
            holder = lock.read_text().removeprefix("process ")
            for process in crowd:
                if str(process.pid) == holder and point.exists():
                    process.kill()
                    return process
        time.sleep(0.001)
    return None


def test_only_one_of_32_concurrent_applies_does_the_work(tmp_path: Path) -> None:
    package = make_install(VERSION, tmp_path / "site", changed_files(VERSION))
    command = (sys.executable, "-m", "agentcore_patches", "apply", "--json")
    crowd = [tracing.start(*command, "--sglang-dir", package) for _ in range(32)]
    changed = 0
    for process in crowd:
        told, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
        assert "Traceback" not in errors
        changed += json.loads(told)["changed"]
    assert changed == 1
