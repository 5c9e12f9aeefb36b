"""Conversations of real clients whose prompts begin with the turns before."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from agentcore_verify import client
from agentcore_verify.scripted_model import TOOLS, line
from agentcore_verify.server import Server
from tests.clients.conftest import SCRIPTS, Environment
from tests.helpers.conversing import prefix_of
from tests.helpers.servers import Launch, Trees

QUESTIONS = ("reasoning_then_tool", "plain", "reasoning", "emoji", "plain")


@pytest.fixture(scope="module")
def remembering(trees: Trees, launch: Launch) -> Iterator[Server]:
    env = {"AGENTCORE_PREFIX_CACHE_MB": "16"}
    with launch(trees.patched, env=env) as running:
        yield running


def read(
    environment: Environment, requirement: str, script: str, server: Server
) -> Any:
    task = {
        "base_url": server.base_url,
        "messages": line("reasoning").messages,
        "questions": [line(question).question for question in QUESTIONS],
        "tools": list(TOOLS),
    }
    done = subprocess.run(
        [environment(requirement), SCRIPTS / f"{script}.py"],
        input=json.dumps(task),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("mode", ["default"], indirect=True)
def test_openai_and_nemo_gym(environment: Environment, server: Server) -> None:
    ways = read(environment, "openai==2.54.0", "openai_turns", server)
    assert ways.keys() == {"field", "streamed", "NeMo Gym"}
    for name, turns in ways.items():
        assert len(turns) == len(QUESTIONS)
        assert turns[0]["prefix"] is None
        for before, turn in pairwise(turns):
            required = [*before["prompt"], *before["token_ids"]]
            source = "message" if name == "NeMo Gym" else "request"
            assert turn["prefix"]["source"] == source, name
            assert turn["prefix"]["kept"] == len(required)
            assert turn["prompt"][: len(required)] == required


def test_anthropic_without_a_field_of_ours(
    environment: Environment, remembering: Server
) -> None:
    ways = read(environment, "anthropic==2.12.0", "anthropic_turns", remembering)
    for prefixes in ways.values():
        assert len(prefixes) == len(QUESTIONS)
        assert prefixes[0] is None
        assert all(said["source"] == "server" for said in prefixes[1:])


@pytest.mark.slow_client
def test_verifiers_by_the_servers_memory(
    environment: Environment, trees: Trees, launch: Launch
) -> None:
    """Its second turn falls back to text, in which the reasoning is gone."""
    args = ("--reasoning-parser", "deepseek-r1")
    env = {"AGENTCORE_PREFIX_CACHE_MB": "16"}
    with launch(trees.patched, *args, env=env) as server:
        script = "verifiers_token_client"
        both = read(environment, "verifiers==0.1.14", script, server)
        first, second = both["first turn"], both["second turn"]
        past = [*first["prompt"], *first["token_ids"]]
        assert second["prompt"][: len(past)] == past
        assert len(second["token_ids"]) == len(second["logprobs"])
        again = client.ask(
            server.base_url, messages=second["messages"], temperature=0, max_tokens=1
        )
        assert list(again.prompt_token_ids or ()) == second["prompt"]
        said = prefix_of(again)
        assert said is not None
        assert said["template_matched"] < said["required"] == len(past)
