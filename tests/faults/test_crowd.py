"""Many commands at once on one install."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from agentcore_patches.disk.filesystem import FOLDER
from tests.faults import tracing, trees
from tests.helpers.planning import VERSION
from tests.helpers.trees import photograph
from tests.helpers.wheels import make_install
from tests.sglang_sources.releases import changed_files

# Files in the state folder at stages of a command's work.
POINTS = ("lock", "store", "prepared.json", "committed.json", "state.json")
EDITIONS = ("vanilla", "apply", "upgrade")


def test_commands_at_once_leave_one_edition_whatever_is_killed(tmp_path: Path) -> None:
    package = trees.build(tmp_path)
    first = photograph(tmp_path)
    kills = 0
    for turn in range(45):
        point = package / FOLDER / POINTS[turn % len(POINTS)]
        crowd = [
            tracing.start(*tracing.command(package, action))
            for action in ("apply", "revert", "upgrade")
        ]
        lock = package / FOLDER / "lock"
        victim = kill_at_work(crowd, lock, point) if turn % 3 else None
        for process in crowd:
            _, errors = process.communicate(timeout=60)
            assert "Traceback" not in errors
            assert process.returncode == 0 or process is victim, errors
        if victim is not None and victim.returncode != 0:
            kills += 1
        else:
            assert trees.texts(package) in [trees.expected(one) for one in EDITIONS]
            assert trees.stale_bytecode(package) == []
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
