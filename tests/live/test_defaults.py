"""AGENTCORE_DEFAULTS: clients get the fields that the server's variable names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import requests

from agentcore_patches import __version__, status
from agentcore_patches.patches.registry import names
from agentcore_verify import client
from agentcore_verify.server import Server
from agentcore_verify.subject import Subject
from tests.helpers.asking import Case
from tests.helpers.endpoints import (
    CHAT,
    COMPLETIONS,
    MESSAGES,
    RESPONSES,
    VLLM_GENERATE,
    Json,
    body_to,
    get,
    ids_in,
    is_traced,
    post,
    require_traced,
    stream,
)
from tests.helpers.servers import MODES, Launch, Trees

PROMPT = '"prompt_token_ids":['
IDS = '"token_ids":['
FLAGS = (
    *("return_token_ids", "return_prompt_token_ids", "return_meta_info"),
    "return_token_logprobs",
)

each_mode = pytest.mark.parametrize("mode", ["default", "two-workers"], indirect=True)


@pytest.fixture(scope="module")
def defaulting(trees: Trees, launch: Launch, mode: str) -> Iterator[Server]:
    """A patched server whose environment names all flags but one."""
    env = {"AGENTCORE_DEFAULTS": ", ".join(FLAGS)}
    with launch(trees.patched, *MODES[mode], env=env) as running:
        yield running


def chat_of(name: str, **more: Any) -> Json:
    return Case(name, tools="tool" in name).body(**more)


@each_mode
@pytest.mark.parametrize("name", ["emoji", "two_tools"])
def test_chat_has_by_default_what_a_request_can_ask_for(
    defaulting: Server, name: str
) -> None:
    body = chat_of(name, logprobs=True)
    asked = post(defaulting, CHAT, **body, **dict.fromkeys(FLAGS, True))
    [wanted] = asked["choices"]
    assert wanted["meta_info"] and wanted["prompt_token_ids"]
    for flags in ({}, dict.fromkeys(FLAGS)):
        answer = post(defaulting, CHAT, **body, **flags)
        [choice] = answer["choices"]
        assert choice.keys() == wanted.keys()
        assert answer["prompt_token_ids"] == choice["prompt_token_ids"]
        assert choice["prompt_token_ids"] == wanted["prompt_token_ids"]
        assert choice["token_ids"] == wanted["token_ids"]
        assert isinstance(choice["message"]["content"], str)
    first, *_ = events = stream(defaulting, CHAT, **chat_of(name))
    for answer in (first, first["choices"][0]):
        assert answer["prompt_token_ids"] == wanted["prompt_token_ids"]
    choices = [choice for event in events for choice in event["choices"]]
    assert ids_in(events) == wanted["token_ids"]
    values = [choice.get("token_logprobs", []) for choice in choices]
    assert sum(map(len, values)) == len(wanted["token_ids"])
    # A stream would refuse it, if it were asked for.
    assert not any("meta_info" in choice for choice in choices)


@each_mode
def test_generate_has_the_prompt_ids_by_default(defaulting: Server) -> None:
    sampling = {"max_new_tokens": 4, "temperature": 0}
    prompts = [[5, 6, 7], [8, 9]]
    body: Json = {"input_ids": prompts, "sampling_params": sampling}
    batch: Any = post(defaulting, "/generate", **body)
    assert [answer["prompt_token_ids"] for answer in batch] == prompts
    body["input_ids"] = prompts[0]
    events = stream(defaulting, "/generate", **body)
    assert [event.get("prompt_token_ids") for event in events].count([5, 6, 7]) == 1
    without = post(defaulting, "/generate", **body, return_prompt_token_ids=False)
    assert "prompt_token_ids" not in without


TRACED = (CHAT, COMPLETIONS, MESSAGES, RESPONSES, VLLM_GENERATE)


def texts_of(server: Server, path: str, **more: Any) -> list[str]:
    """Return the non-streaming answer of an endpoint, and its stream."""
    url, model = server.base_url + path, Subject(server.base_url).served_model()
    body = {"model": model, "return_token_ids": True, **body_to(path, 9), **more}
    texts = []
    for streaming in (False, True):
        with client.post(url, {**body, "stream": streaming}) as response:
            texts.append(response.content.decode())
    return texts


@each_mode
@pytest.mark.parametrize("path", TRACED)
def test_each_endpoint_has_ids_by_default_and_a_request_can_leave_them_out(
    defaulting: Server, path: str, release: str
) -> None:
    require_traced(path, release)
    if path != VLLM_GENERATE:
        for text in texts_of(defaulting, path, return_token_ids=None):
            assert PROMPT in text and IDS in text
        flags = FLAGS if path == CHAT else FLAGS[:2]
        for text in texts_of(defaulting, path, **dict.fromkeys(flags, False)):
            assert PROMPT not in text and IDS not in text
    for text in texts_of(defaulting, path, return_prompt_token_ids=False):
        assert PROMPT not in text
        assert IDS in text
    for text in texts_of(defaulting, path, return_prompt_token_ids=None):
        assert PROMPT in text


def test_a_server_can_leave_out_the_prompt(
    trees: Trees, launch: Launch, release: str
) -> None:
    env = {"AGENTCORE_DEFAULTS": "return_token_ids,return_prompt_token_ids=false"}
    with launch(trees.patched, env=env) as server:
        for path in (path for path in TRACED if is_traced(path, release)):
            for text in texts_of(server, path, return_prompt_token_ids=None):
                assert PROMPT not in text
                assert IDS in text
        explicit = post(server, CHAT, **chat_of("plain"), return_prompt_token_ids=True)
        assert explicit["choices"][0]["prompt_token_ids"]
        # Some clients read lines of at most 16 KB.
        _, text = texts_of(server, CHAT, input_ids=[5] * 9_000)
        assert max(map(len, text.splitlines())) < 16_384


@each_mode
def test_the_server_reports_its_patches(
    defaulting: Server, release: str, trees: Trees
) -> None:
    version = status(sglang_dir=trees.patched / "sglang").applied_by
    assert version and version.startswith(__version__)
    for path in ("/server_info", "/get_server_info"):
        info = get(defaulting, path)
        assert info["agentcore_patches"] == {
            "version": version,
            "patches": list(names()),
            "release": release,
            "logprobs": "processed",
        }
    log = defaulting.options.log.read_text()
    assert f"agentcore-patch {version}: {', '.join(names())}" in log
    assert f"true by default: {', '.join(FLAGS)}" in log


def test_a_server_answers_before_the_first_prompt(trees: Trees, launch: Launch) -> None:
    with launch(trees.patched, *MODES["two-workers"]) as server:
        # Either worker may answer.
        for _ in range(8):
            assert "agentcore_patches" in get(server, "/server_info")
            flushed = requests.post(f"{server.base_url}/flush_cache", timeout=30)
            assert flushed.status_code == 200
