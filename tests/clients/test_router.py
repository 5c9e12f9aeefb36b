"""`verify` through a router: it reports the fields that the router drops."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentcore_verify import client
from agentcore_verify import router as routers
from agentcore_verify.client import HttpError
from agentcore_verify.server import Server
from agentcore_verify.subject import Subject
from tests.clients.conftest import Environment, route
from tests.helpers.asking import CASES
from tests.helpers.servers import Launch, Trees

THROUGH_ROUTER = routers.THROUGH_ROUTER
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


def test_a_router_that_drops_ids_fails_the_rules_about_them(router: str) -> None:
    command = [sys.executable, "-m", "agentcore_patches", "verify", "--json"]
    done = subprocess.run(
        [*command, "--level", "token-in,turns", "--base-url", router],
        capture_output=True,
        text=True,
    )
    document = json.loads(done.stdout)
    verdicts = {rule["number"]: rule["verdict"] for rule in document["rules"]}
    assert verdicts == dict.fromkeys((15, 16, 17), "fail")


def test_no_field_is_dropped_by_the_server_itself(server: Server) -> None:
    subject = Subject(server.base_url)
    assert not routers.is_router(subject)
    assert routers.dropped_fields(subject) == []


def test_the_router_behaves_as_documented(router: str, server: Server) -> None:
    chat = CASES["plain"].body(max_tokens=4)
    by_ids = client.chat(router, **chat, input_ids=[5, 6, 7])
    assert by_ids["prompt_token_ids"] == client.chat(router, **chat)["prompt_token_ids"]

    body = {"model": "default", "max_tokens": 4, "return_token_ids": True}
    completion = client.post_json(f"{router}/v1/completions", {"prompt": "x", **body})
    assert completion["choices"][0]["token_ids"]
    with pytest.raises(HttpError) as refused:
        client.post_json(f"{router}/v1/completions", {"prompt": [5, 6], **body})
    assert refused.value.status == 422
    for path in ("/v1/messages", "/tokenize", "/detokenize", "/abort_request"):
        with pytest.raises(HttpError) as missing:
            client.post_json(f"{router}{path}", {})
        assert missing.value.status == 404

    asked: dict[str, Any] = {"input_ids": [5, 6], "return_prompt_token_ids": True}
    direct = client.generate(server.base_url, **asked)
    routed = client.generate(router, **asked)
    assert direct["prompt_token_ids"] == [5, 6]
    assert "prompt_token_ids" not in routed
    assert routed["meta_info"]["prompt_tokens"] == 2


@pytest.fixture
def defaulting_router(
    trees: Trees, launch: Launch, environment: Environment, tmp_path: Path
) -> Iterator[str]:
    """The URL of a router in front of a server that returns all fields by default."""
    named = "return_token_ids,return_prompt_token_ids,return_meta_info"
    with (
        launch(trees.patched, env={"AGENTCORE_DEFAULTS": named}) as running,
        route(environment, running, tmp_path) as url,
    ):
        yield url


def test_server_defaults_replace_flags_that_the_router_drops(
    defaulting_router: str, server: Server
) -> None:
    body = CASES["one tool call"].body(logprobs=True)
    asked = client.chat(
        server.base_url, **body, return_prompt_token_ids=True, return_meta_info=True
    )
    routed = client.chat(
        defaulting_router, **body, return_prompt_token_ids=True, return_meta_info=True
    )
    [expected], [choice] = asked["choices"], routed["choices"]
    assert choice["prompt_token_ids"] == expected["prompt_token_ids"]
    assert choice["token_ids"] == expected["token_ids"]
    logprobs = choice["meta_info"]["output_token_logprobs"]
    assert [token_id for _, token_id, _ in logprobs] == choice["token_ids"]
    assert choice["message"]["content"] == ""

    streamed = client.ask(defaulting_router, **body, stream=True)
    assert streamed.errors == ()
    assert list(streamed.completions[0].token_ids or ()) == choice["token_ids"]
    assert "return_meta_info" not in {
        field.name for field in routers.dropped_fields(Subject(defaulting_router))
    }
