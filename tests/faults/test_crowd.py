"""Many commands at once on one install."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.faults import tracing, trees
from tests.helpers.planning import VERSION
from tests.helpers.trees import photograph
from tests.helpers.wheels import make_install
from tests.sglang_sources.releases import changed_files

EDITIONS = ("vanilla", "apply", "upgrade")


def test_commands_at_once_leave_one_edition(tmp_path: Path) -> None:
    package = trees.build(tmp_path)
    first = photograph(tmp_path)
    for _ in range(15):
        crowd = [
            tracing.start(*tracing.command(package, action))
            for action in ("apply", "revert", "upgrade")
        ]
        for process in crowd:
            _, errors = process.communicate(timeout=60)
            assert process.returncode == 0, errors
        assert trees.texts(package) in [trees.expected(one) for one in EDITIONS]
        assert trees.stale_bytecode(package) == []
    trees.run(package, "revert")
    assert photograph(tmp_path) == first


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
