"""Output for scripts: one document of the described type for every command."""

from __future__ import annotations

import json
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from agentcore_patches import api, listing, results
from agentcore_patches.cluster import results as ray_results
from agentcore_patches.cluster.results import NodeResult, RayNode
from agentcore_patches.command.json_output import document
from tests.helpers.documents import mismatches
from tests.helpers.json_documents import (
    ApplyDocument,
    ErrorDocument,
    ListDocument,
    RayDocument,
    RevertDocument,
    StatusDocument,
)
from tests.unit.running import Run
from tests.unit.small_sglang import kill_apply


@pytest.mark.parametrize(
    ("before", "command", "described"),
    [
        ([], ["apply", "--diff"], ApplyDocument),
        ([], ["apply", "--dry-run"], ApplyDocument),
        ([["apply"]], ["apply"], ApplyDocument),
        ([["apply"]], ["apply", "--only", "alpha"], ApplyDocument),
        ([], ["status"], StatusDocument),
        ([["apply"]], ["status", "--check"], StatusDocument),
        ([["apply"]], ["revert"], RevertDocument),
        ([], ["revert"], RevertDocument),
        ([], ["list"], ListDocument),
        ([], ["apply", "--no-such-option"], ErrorDocument),
        ([], ["apply", "--only", "nothing"], ErrorDocument),
        ([], ["apply", "--lock-timeout", "soon"], ErrorDocument),
        ([], ["no-such-command"], ErrorDocument),
        ([], ["--no-such-option"], ErrorDocument),
        ([], ["list", "too", "much"], ErrorDocument),
        ([], ["apply", "--ray", "local"], ErrorDocument),
        ([], ["status", "--ray", "127.0.0.1:1"], ErrorDocument),
        ([], ["apply", "--ray", "auto", "--diff"], ErrorDocument),
        ([], ["verify", "--no-such-option"], ErrorDocument),
        ([], ["verify"], ErrorDocument),
        ([], ["audit"], ErrorDocument),
        ([], ["audit", "/no/such/file"], ErrorDocument),
    ],
)
def test_every_command_prints_one_document_of_its_type(
    run: Run, before: list[list[str]], command: list[str], described: Any
) -> None:
    for earlier in before:
        assert run(*earlier).code == 0

    ran = run(*command, "--json")

    assert mismatches(ran.document, described) == []
    if described is ErrorDocument:
        assert ran.code == ran.document["error"]["exit_code"] != 0
        assert ran.err == ""


def test_documents_of_recovered_and_unrecorded_installs(
    run: Run, package: Path
) -> None:
    kill_apply(package, "committed.json")
    for command, described in (
        (["status"], StatusDocument),
        (["apply", "--dry-run"], ApplyDocument),
    ):
        pending = run(*command, "--json").document
        assert mismatches(pending, described) == []
        assert pending["pending"] and not pending.get("recovered")

    recovered = run("apply", "--json").document
    assert mismatches(recovered, ApplyDocument) == []
    assert recovered["recovered"]
    for file in (package / ".agentcore-patch").rglob("*.json"):
        file.unlink()
    unrecorded = run("status", "--json").document
    assert mismatches(unrecorded, StatusDocument) == []
    assert unrecorded["applied_by"] is None and not unrecorded["recorded"]


def test_nodes_of_a_cluster_are_one_document(package: Path) -> None:
    node = RayNode("0123", "127.0.0.1", "here")
    before = api.status(sglang_dir=package)
    applied = api.apply(sglang_dir=package, diff=True)
    after = api.status(sglang_dir=package)

    done = NodeResult(node, before, applied, after, None)
    seen = NodeResult(node, status=after)
    failed = NodeResult(node, error="It is gone.")

    for nodes, complete, changed in (
        ((done,), True, True),
        ((seen, seen), True, False),
        ((done, failed), False, True),
        ((seen, failed), False, False),
    ):
        told = json.loads(document(nodes))
        assert mismatches(told, RayDocument) == []
        assert (told["complete"], told["changed"]) == (complete, changed)
        assert told["nodes"][0]["hostname"] == "here"


def test_json_among_server_options_does_not_select_json_output(run: Run) -> None:
    ran = run("verify", "--no-such-option", "--", "--json")

    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error: No such option")


def test_a_document_names_its_sglang(run: Run, package: Path) -> None:
    assert run("apply", "--json").document["sglang"] == {
        "path": str(package),
        "version": "0.5.9",
        "release": "0.5.9",
        "found": "given by --sglang-dir",
        "editable": False,
        "leftovers": [],
    }


PUBLIC = [
    value
    for module in (results, listing, ray_results)
    for value in vars(module).values()
    if is_dataclass(value) and value.__module__.startswith("agentcore_patches.")
]


@pytest.mark.parametrize("public", PUBLIC, ids=lambda public: public.__name__)
def test_the_types_of_results_can_be_resolved(public: type) -> None:
    hints = get_type_hints(public)
    assert hints.keys() == public.__annotations__.keys()


def test_the_types_of_the_functions_can_be_resolved() -> None:
    for function in (api.apply, api.status, api.revert, api.apply_patch):
        assert "return" in get_type_hints(function)
