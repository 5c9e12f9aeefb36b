"""`verify --base-url` and the patches that a running server reports."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from agentcore_patches.command.cli import main
from agentcore_verify import checks
from agentcore_verify.identity import find_profile, identify
from agentcore_verify.results import Identity, Report
from agentcore_verify.subject import Subject
from tests.helpers.documents import mismatches

Verified = Callable[..., tuple[int, str, Any]]


@pytest.fixture
def verified(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Verified:
    """Verify a running server; return the exit code, the text and the document."""

    def run(url: str, *options: str) -> tuple[int, str, Any]:
        file = tmp_path / "report.json"
        report = ("--json-file", str(file), "--color", "never")
        code = main(["verify", "--base-url", url, *report, *options])
        return code, capsys.readouterr().out, json.loads(file.read_text())

    return run


STOCK = {"version": "0.5.9", "mem_fraction_static": 0.8}
OLD = {"agentcore_patches": {"version": "0.2.0", "patches": ["token-ids"]}}
VLLM = {"vllm_config": "dtype=torch.float32"}


def answer(**ids: object) -> dict[str, Any]:
    """Return a chat answer whose choice has these fields."""
    message = {"role": "assistant", "content": "Hi."}
    choice = {"index": 0, "message": message, "finish_reason": "stop", **ids}
    usage = {"prompt_tokens": 1, "completion_tokens": 1}
    return {"choices": [choice], "prompt_token_ids": None, "usage": usage}


def serve(
    server: HTTPServer,
    info: dict[str, Any],
    answer: dict[str, Any],
    *,
    routes: bool,
    owner: str = "",
) -> str:
    """Serve this server info; return the URL. A router lacks /detokenize."""
    anywhere = re.compile(".*")
    models = {"data": [{"id": "m", "owned_by": owner}]}
    server.expect_request("/v1/models").respond_with_json(models)
    server.expect_request("/version").respond_with_json({"version": "0.32.0"})
    if routes:
        server.expect_request("/detokenize").respond_with_json(answer, status=404)
    server.expect_request(anywhere, method="POST").respond_with_json(answer)
    server.expect_request(anywhere).respond_with_json(info)
    return server.url_for("").removesuffix("/")


@pytest.mark.parametrize(
    ("info", "answer"),
    [(STOCK, answer(token_ids=[1])), (OLD, answer(token_ids=None))],
    ids=["unnamed", "named"],
)
def test_a_server_with_older_patches_is_not_checked(
    verified: Verified,
    httpserver: HTTPServer,
    info: dict[str, Any],
    answer: dict[str, Any],
) -> None:
    url = serve(httpserver, info, answer, routes=False)
    code, shown, document = verified(url)
    asked = [request.path for request, _ in httpserver.log]
    assert asked.count("/v1/chat/completions") <= 1
    assert code == 1 and document["passed"] is False
    assert shown.startswith("FAILED: The ") and shown.count("\n") == 1
    assert "by an older agentcore-patch. Run" in shown
    notes = " ".join(document["notes"])
    assert ("agentcore-patch 0.2.0 does not support the release" in notes) is (
        info is OLD
    )
    assert [check["name"] for check in document["checks"]] == [*checks.NAMES]


@pytest.mark.parametrize(
    ("info", "routes", "named", "profile"),
    [
        (VLLM, False, "vLLM 0.32.0 at ", "vllm"),
        (STOCK, False, "SGLang 0.5.9 at ", "sglang"),
        ({"frontend": "rust", **STOCK}, False, "SGLang 0.5.9 at ", "sglang"),
        ({}, True, "Server at ", "token-names"),
        ({"version": "1.0"}, False, "Server 1.0 at ", "token-names"),
    ],
    ids=["vLLM", "stock SGLang", "SGLang in Rust", "a router", "another engine"],
)
def test_a_server_without_token_ids_offers_nothing_and_no_patch_is_named(
    verified: Verified,
    httpserver: HTTPServer,
    info: dict[str, Any],
    routes: bool,
    named: str,
    profile: str,
) -> None:
    url = serve(httpserver, info, answer(token_ids=None), routes=routes)
    code, shown, document = verified(url, "--level", "ids,turns")
    assert code == 1 and shown.startswith(f"{named}{url}\n")
    assert "No answer has token IDs" in shown
    if "frontend" not in info:
        assert "patch" not in shown
    assert re.search(r"turns +not offered\n", shown)
    assert mismatches(document, Report) == []
    engine, _, version = named.removesuffix(" at ").partition(" ")
    assert document["server"] == {
        "engine": None if engine == "Server" else engine,
        "version": version or None,
    }
    assert document["contract"] == 1 and document["profile"] == profile
    assert document["required"] == ["ids", "turns"]
    assert {rule["number"] for rule in document["rules"]} == {*range(1, 11), 17}
    assert {rule["verdict"] for rule in document["rules"]} == {"unsupported"}


@pytest.mark.parametrize(
    ("owner", "named"),
    [("sglang", {}), ("local", {"matched_stop": None})],
    ids=["by its models", "by its answers"],
)
def test_rules_that_a_router_makes_impossible_to_judge_are_unsupported(
    verified: Verified,
    httpserver: HTTPServer,
    owner: str,
    named: dict[str, Any],
) -> None:
    traced = {**answer(token_ids=[1], **named), "prompt_token_ids": [1]}
    url = serve(httpserver, {}, traced, routes=True, owner=owner)
    _, _, document = verified(url)
    verdicts = {rule["number"]: rule["verdict"] for rule in document["rules"]}
    assert {verdicts[number] for number in (10, *range(14, 20))} == {"unsupported"}
    assert "a router hides /server_info" in " ".join(document["notes"])
    # Bad IDs that a router drops are answered with 200.
    _, _, document = verified(url, "--level", "token-in,turns")
    verdicts = {rule["number"]: rule["verdict"] for rule in document["rules"]}
    assert verdicts[16] == verdicts[17] == "fail"


def test_the_prompts_ids_are_found_where_a_gateway_moves_those_of_tokens(
    httpserver: HTTPServer,
) -> None:
    names = {"content": [{"token": "token_id:7", "logprob": -0.1}]}
    traced = {**answer(logprobs=names), "prompt_token_ids": [5]}
    url = serve(httpserver, {}, traced, routes=True)
    profile = find_profile(Subject(url), None)
    assert (profile.name, profile.prompt_of(traced)) == ("token-names", (5,))
    # LiteLLM, in streams.
    assert profile.prompt_of({"choices": [{"prompt_token_ids": [6]}]}) == (6,)


@pytest.mark.parametrize(
    ("info", "ids", "profile", "routes"),
    [
        # It gives IDs unasked.
        *(({}, [1], "", routes) for routes in (False, True)),
        ({"version": "1.0"}, [1], "", False),
        # Naming a profile makes no server a patched one.
        *((STOCK, None, name, False) for name in ("agentcore", "vllm", "sglang")),
        *((VLLM, None, name, False) for name in ("agentcore", "vllm", "sglang")),
        ({}, None, "agentcore", False),
    ],
)
def test_a_server_that_is_not_known_to_be_patched_is_judged_by_the_rules(
    verified: Verified,
    httpserver: HTTPServer,
    info: dict[str, Any],
    ids: list[int] | None,
    profile: str,
    routes: bool,
) -> None:
    traced = {**answer(token_ids=ids), "prompt_token_ids": ids}
    url = serve(httpserver, info, traced, routes=routes)
    code, shown, document = verified(url, *(["--profile", profile] if profile else ()))
    assert code == 1 and "patch" not in shown and "RULE" in shown
    assert document["by_rules"] and document["profile"] == (profile or "agentcore")


@pytest.mark.parametrize("refuses", ["top-level fields", "everything"])
def test_a_strict_server_is_asked_without_further_fields(
    verified: Verified, httpserver: HTTPServer, refuses: str
) -> None:
    def chat(request: Request) -> Response:
        known = {"model", "messages", "max_tokens"}
        if refuses == "everything" or request.get_json().keys() - known:
            return Response("unknown field", status=422)
        return Response(json.dumps(answer()), status=200)

    models = {"data": [{"id": "m", "owned_by": "vllm"}]}
    httpserver.expect_request("/v1/models").respond_with_json(models)
    httpserver.expect_request("/v1/chat/completions").respond_with_handler(chat)
    url = httpserver.url_for("").removesuffix("/")
    code, _, document = verified(url)
    assert code == (6 if refuses == "everything" else 1)
    assert bool(document["error"]) is (refuses == "everything")


@pytest.mark.parametrize(
    ("model", "engine", "longest"),
    [("b", "vLLM", 20), ("a", "SGLang", 10), ("alias", "SGLang", 10)],
)
def test_a_model_is_looked_up_by_its_name(
    httpserver: HTTPServer, model: str, engine: str, longest: int
) -> None:
    models = [
        {"id": "a", "owned_by": "sglang", "max_model_len": 10},
        {"id": "b", "owned_by": "vllm", "max_model_len": 20},
    ]
    httpserver.expect_request("/v1/models").respond_with_json({"data": models})
    subject = Subject(httpserver.url_for("").removesuffix("/"), model=model)
    assert identify(subject).engine == engine
    assert subject.longest_prompt() == longest


def test_an_error_in_json_says_nothing_of_a_server(httpserver: HTTPServer) -> None:
    models = {"data": [{"id": "m", "owned_by": "vllm"}]}
    missing = {"detail": "Not Found", "version": "9"}
    httpserver.expect_request("/v1/models").respond_with_json(models)
    httpserver.expect_request(re.compile(".*")).respond_with_json(missing, status=404)
    subject = Subject(httpserver.url_for("").removesuffix("/"))
    assert subject.info == {}
    assert identify(subject) == Identity("vLLM")
