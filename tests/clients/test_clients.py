"""The parts of a trace that reach users of real clients, and the lost ones.

`docs/reference/compatibility.md` says what is measured here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agentcore_verify import client
from agentcore_verify.scripted_model import line
from agentcore_verify.server import Server
from tests.clients.conftest import Ask, RunScript
from tests.helpers.asking import CASES, LOGPROB_NOISE, ask
from tests.helpers.conversing import prefix_of
from tests.helpers.servers import Launch, Trees

PAGE = Path(__file__).parents[2] / "docs/reference/compatibility.md"

default_mode = pytest.mark.parametrize("mode", ["default"], indirect=True)

SCRIPTS = {
    "openai==2.54.0": "openai_sdk",
    "openai==3.54.0": "openai_sdk",
    "anthropic==2.12.0": "anthropic_sdk",
    "rllm-model-gateway==0.1.0": "rllm_gateway",
    "verifiers==0.1.14": "verifiers_token_client",
    "agentlightning==0.3.0": "agent_lightning",
}
SLOW = {"verifiers==0.1.14", "agentlightning==0.3.0"}
"""Those that take long to install or to import."""

CLIENTS = [
    pytest.param(
        requirement,
        id=requirement,
        marks=[pytest.mark.slow_client] if requirement in SLOW else [],
    )
    for requirement in SCRIPTS
]

Row = tuple[str, str, str, str]
"""The call, and the presence of prompt IDs, token IDs and logprobs."""


@dataclass(frozen=True)
class Trace:
    """The server's own trace, to compare with the client's."""

    prompt: list[int]
    token_ids: list[int]
    logprobs: list[float]


def _sent(server: Server, **asked: Any) -> Trace:
    """Return the server's response to the clients' question, or to other messages."""
    whole = ask(server, CASES["emoji"], **asked)
    [choice] = whole.completions
    assert whole.prompt_token_ids and choice.token_ids and choice.logprobs
    return Trace(
        list(whole.prompt_token_ids),
        list(choice.token_ids),
        [entry["logprob"] for entry in choice.logprobs],
    )


# One token per chunk: some clients lose the last chunk's.
@default_mode
@pytest.mark.usefixtures("slow_engine")
@pytest.mark.parametrize("requirement", CLIENTS)
def test_a_client_gets_what_the_page_promises(
    server: Server, ask_by: Ask, requirement: str
) -> None:
    read = ask_by(requirement, SCRIPTS[requirement])
    assert _rows(read, server) == _table(requirement.replace("==", " "))


@default_mode
def test_answers_pass_the_router(server: Server, ask_by: Ask, router: str) -> None:
    read = ask_by("openai==2.54.0", "openai_sdk", base_url=router, completions=False)
    table = _table("openai 2.54.0 through sglang-router 0.3.2")
    assert _rows(read, server) == table


@pytest.mark.slow_client
def test_verifiers_with_the_conversation_memory(
    run_script: RunScript, trees: Trees, launch: Launch
) -> None:
    """The second turn falls back to text, which has lost the reasoning."""
    args = ("--reasoning-parser", "deepseek-r1")
    env = {"AGENTCORE_PREFIX_CACHE_MB": "16"}
    with launch(trees.patched, *args, env=env) as server:
        task = {"base_url": server.base_url, "messages": line("reasoning").messages}
        both = run_script("verifiers==0.1.14", "verifiers_token_client", task)
        past = [*both["first turn"][0], *both["first turn"][1]]
        prompt, token_ids, logprobs, messages = both["second turn"]
        assert prompt[: len(past)] == past
        assert len(token_ids) == len(logprobs)
        again = client.ask(
            server.base_url, messages=messages, temperature=0, max_tokens=1
        )
        assert list(again.prompt_token_ids or ()) == prompt
        said = prefix_of(again)
        assert said is not None
        assert said["template_matched"] < said["required"] == len(past)


def _rows(read: dict[str, list[Any]], server: Server) -> list[Row]:
    """Return a row for each kind of request."""
    usual = _sent(server)
    rows = []
    for how, (prompt, token_ids, logprobs, *messages) in read.items():
        sent = _sent(server, messages=messages[0]) if messages else usual
        assert not prompt or prompt == sent.prompt
        noise = pytest.approx(sent.logprobs, abs=LOGPROB_NOISE)
        assert not logprobs or logprobs == noise
        yes = ["yes" if kept else "no" for kept in (prompt, logprobs)]
        rows.append((how, yes[0], _token_ids(token_ids, sent), yes[1]))
    return rows


def _token_ids(token_ids: list[int] | None, sent: Trace) -> str:
    if not token_ids:
        return "no"
    if token_ids == sent.token_ids:
        return "yes"
    # The number of IDs on a chunk depends on the machine's load.
    n_missing = len(sent.token_ids) - len(token_ids)
    assert token_ids == sent.token_ids[:-n_missing]
    few = n_missing < len(token_ids)
    return "all but the last chunk's" if few else "the first chunk's"


def _table(client: str) -> list[Row]:
    """Return the page's rows for a client."""
    lines = re.findall(r"^\|(.+)\|$", PAGE.read_text("utf-8"), re.MULTILINE)
    cells = [[cell.strip() for cell in line.split("|")] for line in lines]
    return [
        (row[1].replace("`", ""), row[2], row[3], row[4])
        for row in cells
        if len(row) == 5 and client in row[0].split(", ")
    ]
