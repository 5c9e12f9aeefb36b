"""Output for scripts: one document of the described type for every command."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentcore_patches import api
from agentcore_patches.cluster.results import NodeResult, RayNode
from agentcore_patches.listing import PatchList
from agentcore_patches.results import ApplyResult, RevertResult, StatusResult
from agentcore_patches.shell.json_output import document
from tests.helpers.documents import Nodes, mismatches
from tests.unit.running import Run
from tests.unit.small_sglang import kill_apply


@pytest.mark.parametrize(
    ("before", "command", "described"),
    [
        ([], ["apply", "--diff"], ApplyResult),
        ([], ["apply", "--dry-run"], ApplyResult),
        ([["apply"]], ["apply"], ApplyResult),
        ([["apply"]], ["apply", "--with", "beta"], ApplyResult),
        ([], ["status"], StatusResult),
        ([["apply"]], ["status", "--check"], StatusResult),
        ([["apply"]], ["revert"], RevertResult),
        ([], ["revert"], RevertResult),
        ([], ["list"], PatchList),
    ],
)
def test_every_command_prints_one_document_of_its_type(
    run: Run,
    package: Path,
    before: list[list[str]],
    command: list[str],
    described: Any,
) -> None:
    for earlier in before:
        assert run(*earlier).code == 0
    target = ["--sglang-dir", str(package)] if described is PatchList else []

    ran = run(*command, *target, "--json")

    assert mismatches(ran.document, described) == []


def test_the_repair_of_an_interrupted_apply_is_told(run: Run, package: Path) -> None:
    kill_apply(package, "committed.json")
    pending = run("status", "--json").document
    assert mismatches(pending, StatusResult) == [] and pending["pending"]
    ran = run("apply", "--json")
    assert mismatches(ran.document, ApplyResult) == []
    assert ran.document["recovered"] == "undid an interrupted apply of core"
    assert ran.err == f"agentcore-patch: {ran.document['recovered']}\n"


def test_nodes_of_a_cluster_are_one_document(package: Path) -> None:
    node = RayNode("0123", "127.0.0.1", "here")
    before = api.status(sglang_dir=package)
    applied = api.apply(sglang_dir=package, diff=True)
    after = api.status(sglang_dir=package)
    done = NodeResult(node, before, applied, after, None)
    seen = NodeResult(node, status=after)
    failed = NodeResult(node, error="It is gone.")
    other = NodeResult(node, status=replace(after, patches=("core", "beta")))

    for nodes, complete, changed in (
        ((done,), True, True),
        ((seen, seen), True, False),
        ((done, failed), False, True),
        ((seen, other), False, False),
        ((seen, failed), False, False),
    ):
        told = json.loads(document(nodes))
        assert mismatches(told, Nodes) == []
        assert (told["complete"], told["changed"]) == (complete, changed)
        assert told["nodes"][0]["hostname"] == "here"


def test_json_among_server_options_does_not_select_json_output(run: Run) -> None:
    ran = run("verify", "--no-such-option", "--", "--json")

    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error: No such option")
