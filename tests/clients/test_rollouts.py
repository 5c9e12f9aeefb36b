"""Complete rollouts by trainers' own clients, through vLLM's endpoints.

The clients' code is unchanged. Their results must equal those of `/generate`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import requests

from agentcore_verify.scripted_model import TOOLS, line
from agentcore_verify.server import Server
from agentcore_verify.subject import Subject
from tests.clients.conftest import RunScript
from tests.helpers.asking import LOGPROB_NOISE
from tests.helpers.endpoints import Json, post, prompt_of
from tests.helpers.servers import Launch, Trees

SKYRL = "skyrl==0.3.0"
TOOLKIT = "agentcore-rl-toolkit[gateway]==0.2.0"
END_ID = 2
"""The token that ends an answer of the scripted model."""


def generated(server: Server, prompt: Sequence[int]) -> Json:
    """Return the answer of `/generate` to a prompt, and its tokens' logprobs."""
    params = {"temperature": 0, "max_new_tokens": 400, "stop_token_ids": [END_ID]}
    asked = {"input_ids": [*prompt], "sampling_params": params, "return_logprob": True}
    answer = post(server, "/generate", **asked)
    rows = answer["meta_info"]["output_token_logprobs"]
    logprobs = [row[0] for row in rows][: len(answer["output_ids"])]
    return {"ids": answer["output_ids"], "logprobs": logprobs}


LINES = (line("emoji"), line("cjk"))


@pytest.fixture(scope="module")
def sleeping(trees: Trees, launch: Launch) -> Iterator[Server]:
    """A server that can sleep."""
    args = ("--enable-memory-saver", "--enable-weights-cpu-backup")
    with launch(trees.patched, *args) as running:
        yield running


# Slow enough for the pause to hit the answers midway.
@pytest.mark.usefixtures("slow_engine")
def test_skyrl(run_script: RunScript, sleeping: Server) -> None:
    prompts = [prompt_of(sleeping, one.name) for one in LINES]
    expected = [generated(sleeping, prompt) for prompt in prompts]
    task = {
        "base_url": sleeping.base_url,
        "model": Subject(sleeping.base_url).served_model(),
        "prompts": prompts,
        "text": LINES[0].question,
    }
    found = run_script(SKYRL, "skyrl_client", task)
    assert found["world"] == [1, 1]
    [pauses] = found["pauses"]["paused"].values()
    assert pauses == {"status": 200, "body": {"status": "paused"}}
    assert not found["pauses"]["was_done"]
    for batch in (found["generate"], found["pauses"]["batch"], found["after"]):
        assert batch["response_ids"] == [one["ids"] for one in expected]
        for said, one in zip(batch["response_logprobs"], expected, strict=True):
            assert said == pytest.approx(one["logprobs"], abs=LOGPROB_NOISE)
        assert batch["responses"] == [one.text for one in LINES]
        assert batch["stop_reasons"] == ["stop", "stop"]
    first = expected[0]
    for sequence in found["sample"]["sequences"]:
        assert sequence["tokens"] == first["ids"]
        assert sequence["logprobs"] == pytest.approx(
            first["logprobs"], abs=LOGPROB_NOISE
        )
    assert len(found["sample"]["sequences"]) == 2
    none, *others = found["sample"]["prompt_logprobs"]
    assert none is None
    assert len(others) == len(prompts[0]) - 1
    assert all(value < 0 for value in others)
    assert {len(top) for top in found["sample"]["topk_prompt_logprobs"][1:]} == {2}
    assert found["detokenize"] == [LINES[0].question]
    for refusal in found["refused"]:
        assert refusal["status"] == 501
        assert "weight_dir" in refusal["message"]
    # The response would be 503 if any part still slept.
    assert requests.get(f"{sleeping.base_url}/health", timeout=60).status_code == 200


TOOL_TURNS = ("two_tools", "text_then_tool", "plain", "emoji")


@pytest.mark.slow_client
def test_agentcore_rl_toolkit(
    run_script: RunScript, sleeping: Server, scripted_model: Path
) -> None:
    task = {
        "base_url": sleeping.base_url,
        "tokenizer": str(scripted_model),
        "questions": [line(name).question for name in TOOL_TURNS],
        "tools": TOOLS,
    }
    found = run_script(TOOLKIT, "toolkit_gateway", task)
    assert len(found) == 4
    for how, rollout in found.items():
        seen: list[int] = []
        trained: list[bool] = []
        logprobs: list[float] = []
        for prompt, ids, said in rollout["turns"]:
            expected = generated(sleeping, prompt)
            assert ids == expected["ids"], how
            assert said == pytest.approx(expected["logprobs"], abs=LOGPROB_NOISE)
            assert prompt[: len(seen)] == seen, how
            n_new = len(prompt) - len(seen)
            seen = prompt + ids
            trained += [False] * n_new + [True] * len(ids)
            logprobs += [0.0] * n_new + said
        assert len(rollout["turns"]) == len(TOOL_TURNS)
        first = len(rollout["turns"][0][0])
        [(token_ids, mask, values)] = rollout["records"]
        assert token_ids == seen
        assert mask == trained[first:]
        assert values == logprobs[first:]
        assert any(rollout["calls"]), how
