"""The parts of a trace that reach users of real clients, and the lost ones.

`docs/reference/compatibility.md` says what is measured here.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from agentcore_verify.server import Server
from tests.clients.conftest import Ask
from tests.helpers.asking import CASES, LOGPROB_NOISE, ask

PAGE = Path(__file__).parents[2] / "docs/reference/compatibility.md"

default_mode = pytest.mark.parametrize("mode", ["default"], indirect=True)

SCRIPTS = {
    "openai==2.54.0": "openai_sdk",
    "openai==3.54.0": "openai_sdk",
    "anthropic==2.12.0": "anthropic_sdk",
    "rllm-model-gateway==0.1.0": "rllm_gateway",
}

Row = tuple[str, str, str, str]
"""The call, and the presence of prompt IDs, token IDs and logprobs."""


# One token per chunk: some clients lose the last chunk's.
@default_mode
@pytest.mark.usefixtures("slow_engine")
@pytest.mark.parametrize("requirement", SCRIPTS)
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


def _rows(read: dict[str, list[Any]], server: Server) -> list[Row]:
    """Return a row for each kind of request, compared with the server's own trace."""
    whole = ask(server, CASES["emoji"])
    [choice] = whole.completions
    values = [entry["logprob"] for entry in choice.logprobs or ()]
    rows = []
    for how, (prompt, token_ids, logprobs) in read.items():
        assert not prompt or prompt == [*(whole.prompt_token_ids or ())]
        assert not logprobs or logprobs == pytest.approx(values, abs=LOGPROB_NOISE)
        yes = ["yes" if kept else "no" for kept in (prompt, logprobs)]
        rows.append(
            (how, yes[0], _kept(token_ids, [*(choice.token_ids or ())]), yes[1])
        )
    return rows


def _kept(token_ids: list[int] | None, sent: list[int]) -> str:
    if not token_ids:
        return "no"
    if token_ids == sent:
        return "yes"
    # The number of IDs on a chunk depends on the machine's load.
    n_missing = len(sent) - len(token_ids)
    assert token_ids == sent[:-n_missing]
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
