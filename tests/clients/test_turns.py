"""Conversations of real clients whose prompts start with the previous turns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from agentcore_verify import client
from agentcore_verify.scripted_model import TOOLS, line
from agentcore_verify.server import Server
from tests.clients.conftest import RunScript
from tests.helpers.conversing import prefix_of
from tests.helpers.endpoints import MESSAGES_TOOLS
from tests.helpers.servers import Launch, Trees

QUESTIONS = ("reasoning_then_tool", "plain", "reasoning", "emoji", "plain")


@pytest.fixture(scope="module")
def remembering(trees: Trees, launch: Launch) -> Iterator[Server]:
    env = {"AGENTCORE_PREFIX_CACHE_MB": "16"}
    with launch(trees.patched, env=env) as running:
        yield running


def task_for(server: Server) -> dict[str, Any]:
    return {
        "base_url": server.base_url,
        "messages": line("reasoning").messages,
        "questions": [line(question).question for question in QUESTIONS],
        "tools": list(TOOLS),
    }


def test_anthropic_without_extra_fields(
    run_script: RunScript, remembering: Server
) -> None:
    task = {**task_for(remembering), "tools": MESSAGES_TOOLS}
    ways = run_script("anthropic==2.12.0", "anthropic_turns", task)
    for prefixes in ways.values():
        assert len(prefixes) == len(QUESTIONS)
        assert prefixes[0] is None
        assert all(said["source"] == "server" for said in prefixes[1:])


@pytest.mark.slow_client
def test_verifiers_with_the_conversation_memory(
    run_script: RunScript, trees: Trees, launch: Launch
) -> None:
    """The second turn falls back to text, which has lost the reasoning."""
    args = ("--reasoning-parser", "deepseek-r1")
    env = {"AGENTCORE_PREFIX_CACHE_MB": "16"}
    with launch(trees.patched, *args, env=env) as server:
        script = "verifiers_token_client"
        both = run_script("verifiers==0.1.14", script, task_for(server))
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
