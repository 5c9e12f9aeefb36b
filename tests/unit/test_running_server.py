"""`verify --base-url` and the patches that a running server reports."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace
from typing import Any

import pytest
from pytest_httpserver import HTTPServer

from agentcore_patches.command.cli import main
from agentcore_verify import checks
from agentcore_verify.runner import Options, _Run


def told(**info: Any) -> str:
    """Return the notes about a server."""
    run = _Run(Options(), progress=None)  # type: ignore[arg-type]
    run._note_patches_of(SimpleNamespace(info=info))  # type: ignore[arg-type]
    return " ".join(run.notes)


def test_a_patched_server_is_reported_with_its_version() -> None:
    info = {"version": "0.9", "patches": ["core", "vllm-api"], "release": None}
    assert told(agentcore_patches=info) == (
        "The server has agentcore-patch 0.9: core, vllm-api. agentcore-patch 0.9 does "
        "not support the release that this server runs."
    )


STOCK = {"version": "0.5.9"}
PATCHED = {"agentcore_patches": {"version": "0.2.0", "patches": ["core"]}}
OLD = {"agentcore_patches": {"version": "0.2.0", "patches": ["token-ids"]}}


def serve(
    server: HTTPServer, info: dict[str, Any], answer: dict[str, Any], *, routes: bool
) -> str:
    """Serve this server info; return the URL. A router lacks /detokenize."""
    anywhere = re.compile(".*")
    server.expect_request("/v1/models").respond_with_json({"data": [{"id": "m"}]})
    if routes:
        server.expect_request("/detokenize").respond_with_json(answer, status=404)
    server.expect_request(anywhere, method="POST").respond_with_json(answer)
    server.expect_request(anywhere).respond_with_json(info)
    return server.url_for("").removesuffix("/")


@pytest.mark.parametrize(
    ("info", "answer", "routes", "says"),
    [
        (STOCK, {}, False, "is not patched: its answers have no token IDs"),
        (STOCK, {"prompt_token_ids": [1]}, False, "by an older agentcore-patch. Run"),
        (OLD, {}, False, "by an older agentcore-patch. Run"),
        ({}, {}, True, "The router at {url} passes no token IDs on, and hides whether"),
        ({"frontend": "rust"}, {}, False, "is SGLang's Rust server"),
        ({"vllm_config": ""}, {"prompt_token_ids": None}, False, "vLLM at {url} is"),
        (STOCK, {"prompt_token_ids": None}, False, "is not patched: its answers"),
    ],
    ids=[
        *("unpatched", "too old", "named patches", "hidden by a router", "in Rust"),
        *("vLLM", "null is no ID"),
    ],
)
def test_a_running_server_that_cannot_pass_is_not_checked(
    capsys: pytest.CaptureFixture[str],
    httpserver: HTTPServer,
    info: dict[str, Any],
    answer: dict[str, Any],
    routes: bool,
    says: str,
) -> None:
    url = serve(httpserver, info, answer, routes=routes)
    code = main(["verify", "--base-url", url, "--color", "never"])
    shown = capsys.readouterr()
    asked = [request.path for request, _ in httpserver.log]
    assert asked.count("/v1/chat/completions") <= 1
    assert main(["verify", "--base-url", url, "--json"]) == 1

    assert code == 1
    assert shown.out.startswith("FAILED: ") and shown.out.count("\n") == 1
    assert says.format(url=url) in shown.out
    document = json.loads(capsys.readouterr().out)
    assert document["passed"] is False
    assert [check["name"] for check in document["checks"]] == [*checks.NAMES]


@pytest.mark.parametrize("strict", [False, True])
def test_a_check_of_an_extra_that_a_running_server_lacks_is_skipped(
    capsys: pytest.CaptureFixture[str], httpserver: HTTPServer, strict: bool
) -> None:
    options = ["--json", "--check", "vllm-api"]
    url = serve(httpserver, PATCHED, {}, routes=False)
    code = main(["verify", "--base-url", url, *options, *["--strict"] * strict])

    document = json.loads(capsys.readouterr().out)
    [check] = document["checks"]
    assert check["outcome"] == "skipped"
    assert check["message"] == "The extra vllm-api is not installed."
    assert (code, document["patches"]) == (1, ["core"])
    assert document["versions"]["patched_by"] == "0.2.0"
