"""`verify` through a router: it reports the fields that the router drops."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from agentcore_verify import checks
from agentcore_verify import router as routers

THROUGH_ROUTER = [name for name in checks.NAMES if checks.get(name).through_router]
FIELDS = [field.name for field in routers.FIELDS]

pytestmark = pytest.mark.parametrize("mode", ["default"], indirect=True)


def test_verify_names_the_fields_that_the_router_drops(router: str) -> None:
    command = [sys.executable, "-m", "agentcore_patches", "verify", "--json"]
    done = subprocess.run(
        [*command, "--base-url", router], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    outcomes = {check["name"]: check["outcome"] for check in document["checks"]}
    run = {name: outcome for name, outcome in outcomes.items() if outcome != "skipped"}
    # This server has no reasoning parser, which a router does not report.
    expected = dict.fromkeys(THROUGH_ROUTER, "passed") | {"reasoning": "not exercised"}
    assert run == expected
    notes = " ".join(document["notes"])
    assert "Token IDs were not compared with texts" in notes
    for field in FIELDS:
        assert f"drops the request field {field}:" in notes
    assert "answered as the text of its placeholder messages" in notes
