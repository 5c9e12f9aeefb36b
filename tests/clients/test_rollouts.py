"""Complete rollouts by trainers' own clients, through vLLM's endpoints.

The clients' code is unchanged. Their results must equal those of `/generate`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
import requests

from agentcore_verify.scripted_model import TOOLS, line
from agentcore_verify.server import Server
from agentcore_verify.subject import Subject
from tests.clients.conftest import RunScript
from tests.helpers import tagged_model
from tests.helpers.asking import LOGPROB_NOISE
from tests.helpers.endpoints import Json, post, prompt_of
from tests.helpers.servers import Launch, Trees

VERIFIERS = "verifiers==0.4.0"
SKYRL = "skyrl==0.3.0"
TRL = "trl==1.16.0"
TOOLKIT = "agentcore-rl-toolkit[gateway]==0.2.0"

WEATHER: Json = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city right now.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"title": "City", "type": "string"}},
            "required": ["city"],
            "title": "get_weatherArguments",
        },
    },
}
"""The tool of `scripts/verifiers_rollout.py`, as verifiers describes it."""

REASONING = "Rome is in Italy, so I ask for it."
ARGUMENTS = '{"city": "Rome"}'
ANSWERS = (
    line("reasoning_then_tool").text,
    "It is sunny in Rome ☀.",
    "Twenty degrees, and 10 % of rain 🌧.",
)
QUESTIONS = (line("reasoning_then_tool").question, "And in numbers?")
TURNS: tuple[Json, ...] = (
    {"role": "user", "content": QUESTIONS[0]},
    {
        "role": "assistant",
        "content": "",
        "reasoning_content": REASONING,
        "tool_calls": [
            {
                "id": "call_0",
                "type": "function",
                "function": {"name": "get_weather", "arguments": ARGUMENTS},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "call_0", "content": "sunny in Rome, 20 C"},
    {"role": "assistant", "content": ANSWERS[1]},
    {"role": "user", "content": QUESTIONS[1]},
)


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


@pytest.fixture(scope="module")
def tagged(run_script: RunScript, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that answers the rollout's prompts, as `renderers` makes them."""
    folder = tmp_path_factory.mktemp("tagged")
    task = {
        "tokenizer": str(tagged_model.write_tokenizer(folder / "tokenizer")),
        "tools": [WEATHER],
        "conversations": [TURNS[:1], TURNS[:3], TURNS],
    }
    prompts = run_script(VERIFIERS, "verifiers_prompts", task)["prompts"]
    return tagged_model.make(folder / "model", prompts, ANSWERS)


@pytest.fixture(scope="module")
def serving_tagged(trees: Trees, launch: Launch, tagged: Path) -> Iterator[Server]:
    with launch(trees.patched, model=tagged) as running:
        yield running


@pytest.mark.slow_client
def test_verifiers_and_renderers(
    run_script: RunScript, serving_tagged: Server, tagged: Path
) -> None:
    task = {
        "base_url": serving_tagged.base_url,
        "model": Subject(serving_tagged.base_url).served_model(),
        "tokenizer": str(tagged),
        "questions": QUESTIONS,
        "max_tokens": 200,
    }
    trace = run_script(VERIFIERS, "verifiers_rollout", task)
    assert trace["errors"] == []
    messages = [node["message"] for node in trace["nodes"] if node["sampled"]]
    call, text, numbers = messages
    [made] = call["tool_calls"]
    assert (made["name"], json.loads(made["arguments"])) == (
        "get_weather",
        {"city": "Rome"},
    )
    assert call["reasoning_content"] == REASONING
    assert (text["content"], numbers["content"]) == ANSWERS[1:]
    results = {
        node["message"]["content"]
        for node in trace["nodes"]
        if node["message"]["role"] == "tool"
    }
    assert results == {TURNS[2]["content"]}
    assert_like_generate(serving_tagged, trace, len(ANSWERS))


def assert_like_generate(server: Server, trace: Json, answers: int) -> None:
    """Check that a rollout has the tokens that `/generate` samples for its prompts.

    `answers` is the number of requests to the model.
    """
    asked = 0
    for branch in trace["branches"]:
        mask, ids = branch["mask"], branch["token_ids"]
        starts = [i for i, (a, b) in enumerate(pairwise(mask), 1) if b and not a]
        for start in starts:
            end = mask.index(False, start) if False in mask[start:] else len(mask)
            expected = generated(server, ids[:start])
            assert ids[start:end] == expected["ids"]
            assert branch["logprobs"][start:end] == pytest.approx(
                expected["logprobs"], abs=LOGPROB_NOISE
            )
            asked += 1
    assert asked == answers


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


@pytest.mark.slow_client
def test_trl(run_script: RunScript, sleeping: Server) -> None:
    prompts = [prompt_of(sleeping, one.name) for one in LINES]
    expected = [generated(sleeping, prompt) for prompt in prompts]
    messages = [one.messages for one in LINES]
    task = {
        "base_url": sleeping.base_url,
        "prompts": prompts,
        "messages": messages,
        "tools": TOOLS,
    }
    found = run_script(TRL, "trl_client", task)
    assert found["world"] == 1
    ways = {"generate": 1, "two": 3, "without": None, "tools": 1, "rendered": 1}
    for name, count in {**ways, "defaults": 0, "chat": 0}.items():
        said = found[name]
        each = 2 if name == "two" else 1
        with_tools = [prompt_of(sleeping, one.name, tools=TOOLS) for one in LINES]
        # SGLang leaves the tools out of the prompt of a request with tool_choice none.
        sent = with_tools if name == "rendered" else prompts
        assert said["prompt_ids"] == sent, name
        asked = [one for one in expected for _ in range(each)]
        assert said["completion_ids"] == [one["ids"] for one in asked], name
        if count is None:
            assert said["logprobs"] is None
            continue
        for rows, ids, one in zip(
            said["logprobs"], said["logprob_token_ids"], asked, strict=True
        ):
            # Greedy: the sampled token is the likeliest.
            assert [row[0] for row in ids] == one["ids"]
            assert {len(row) for row in ids} == {max(count, 1)}
            if name != "rendered":
                assert [row[0] for row in rows] == pytest.approx(
                    one["logprobs"], abs=LOGPROB_NOISE
                )
    assert "has no weight-transfer engine" in found["weights"]


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
