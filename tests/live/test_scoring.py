"""Scoring requests beside others: each gets the values of its own token IDs."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from agentcore_patches.patches.releases import is_between
from agentcore_verify import cpu
from agentcore_verify.server import Server
from tests.helpers import weights
from tests.helpers.asking import (
    CASES,
    LOGPROB_NOISE,
    ask,
    assert_equal,
    assert_whole,
)
from tests.helpers.endpoints import CHAT, post, send
from tests.helpers.servers import Launch, Trees, held, held_requests
from tests.helpers.waiting import wait_until

in_one_mode = pytest.mark.parametrize(
    "mode", ["default"], indirect=True, scope="session"
)

PROMPT = [5, 6, 7, 8, 9, 10]
NOTHING = {"max_new_tokens": 0, "temperature": 0}
SCORED: dict[str, dict[str, Any]] = {
    "output": {"token_ids_logprob": [10, 11, 12]},
    "prompt": {"token_ids_logprob": [3], "logprob_start_len": 0},
    "prompt, of no IDs": {"logprob_start_len": 0, "top_logprobs_num": 1},
    "no prompt, of no IDs": {},
    "nothing generated": {
        **{"token_ids_logprob": [10, 11], "logprob_start_len": 0},
        **{"top_logprobs_num": 2, "sampling_params": NOTHING},
    },
}
KINDS = ("token", "top", "token_ids")
NAMES = [f"{part}_{kind}_logprobs" for part in ("input", "output") for kind in KINDS]


LABELS = {"label_token_ids": [20, 21], "query": [5, 6, 7], "items": [[8, 9], [10]]}
TEXTS = {**LABELS, "query": "Is it?", "items": ["yes", "no"]}
LAST = {
    "sampling_params": NOTHING,
    "return_logprob": True,
    "token_ids_logprob": [10, 11],
}
OPTIONS = [{"name": "wet"}, {"name": "dry"}]
QUESTION = {"type": "choice", "id": "out", "question": "Is it?", "options": OPTIONS}
DOCUMENTS = ["It is.", "A lantern"]
SCORINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "IDs": ("/v1/score", LABELS),
    "items first": ("/v1/score", {**LABELS, "item_first": True}),
    "text": ("/v1/score", {**TEXTS, "apply_softmax": True}),
    "prompts": (
        "/generate",
        {
            **LAST,
            "input_ids": [PROMPT[: 2 + i] for i in range(4)],
            "logprob_start_len": 0,
        },
    ),
    "documents": ("/v1/rerank", {"query": "Is it?", "documents": DOCUMENTS}),
    "decisions": ("/v1/decisions", {"input": "Rain.", "questions": [QUESTION]}),
}
"""Requests that generate nothing, by name; every release serves all but the last."""

ENGINE = """
import json, sys
from sglang.srt.entrypoints.engine import Engine
from sglang.srt.server_args import prepare_server_args

if __name__ == "__main__":
    engine = Engine(server_args=prepare_server_args(sys.argv[2:]))
    result = engine.score(**json.loads(sys.argv[1]))
    # Newer releases wrap the scores.
    print(json.dumps(getattr(result, "scores", result)))
    engine.shutdown()
"""

RERANKER = """{#- The answer can only be "yes" or "no". -#}
{{ messages[0].content }} {{ messages[1].content }}"""
"""A template by which SGLang takes a decoder for a reranker."""


@pytest.fixture(scope="module")
def reranker(scripted_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the scripted model that SGLang takes for a reranker."""
    folder = tmp_path_factory.mktemp("reranker") / "model"
    model = weights.without(scripted_model, folder)
    vocabulary = model / "tokenizer.json"
    # The tokens of bytes that no text has.
    text = vocabulary.read_text().replace('"þ"', '"yes"').replace('"ÿ"', '"no"')
    vocabulary.write_text(text)
    (model / "chat_template.jinja").write_text(RERANKER)
    return model


@pytest.fixture(scope="module")
def rankers(
    trees: Trees, launch: Launch, reranker: Path
) -> Iterator[tuple[Server, Server]]:
    """A patched server and an unpatched one."""
    with (
        launch(trees.patched, model=reranker) as patched,
        launch(trees.vanilla, model=reranker) as stock,
    ):
        yield patched, stock


def scores(server: Server, name: str) -> tuple[float, ...]:
    """Return the scores that a request of `SCORINGS` gets."""
    path, body = SCORINGS[name]
    answer: Any = post(server, path, **body)
    if path == "/generate":
        found = [
            one["meta_info"][f"{part}_token_ids_logprobs"]
            for one in answer
            for part in ("input", "output")
        ]
    elif path == "/v1/score":
        found = answer["scores"]
    elif path == "/v1/rerank":
        found = [one["score"] for one in answer]
    else:
        decided = answer["answers"]["out"]
        found = [*decided["probabilities"].values(), decided["label_mass"]]
    return tuple(_flat(found))


def scores_when_idle(server: Server, name: str) -> set[tuple[float, ...]]:
    """Return the scores with an empty cache, and then of three requests at once."""
    wait_until(lambda: send(server, "/flush_cache").ok)
    alone = scores(server, name)
    with ThreadPoolExecutor(3) as pool:
        return {alone, *pool.map(lambda _: scores(server, name), range(3))}


def score(server: Server, name: str) -> dict[str, Any]:
    """Return the `meta_info` of a request that asks for logprobs."""
    asked = {
        "input_ids": [*PROMPT, 20 + len(name)],
        "sampling_params": {**NOTHING, "max_new_tokens": 20, "ignore_eos": True},
        "return_logprob": True,
        **SCORED[name],
    }
    meta_info: dict[str, Any] = post(server, "/generate", **asked)["meta_info"]
    return meta_info


def assert_same_values(meta_info: dict[str, Any], alone: dict[str, Any]) -> None:
    for name in NAMES:
        assert (name in meta_info) == (name in alone)
        assert _flat(meta_info.get(name)) == pytest.approx(
            _flat(alone.get(name)), abs=LOGPROB_NOISE
        )


def _flat(values: Any) -> list[float]:
    """Return the numbers of nested lists, in order; -1 for None."""
    if isinstance(values, list):
        return [number for value in values for number in _flat(value)]
    return [] if isinstance(values, str) else [-1 if values is None else values]


@in_one_mode
@pytest.mark.usefixtures("slow_engine")
def test_each_request_of_a_batch_gets_the_values_of_its_own_token_ids(
    server: Server,
) -> None:
    alone = {name: score(server, name) for name in SCORED}
    assert len(alone["output"]["output_token_ids_logprobs"]) == 20
    by_id = alone["prompt"]["input_token_ids_logprobs"]
    assert [len(row) for row in by_id[1:]] == [1] * len(PROMPT)
    nothing = alone["nothing generated"]
    assert len(nothing["output_token_ids_logprobs"]) == 1
    assert nothing["output_token_logprobs"] == nothing["output_top_logprobs"] == []
    quiet = ask(server, CASES["top_logprobs"])
    with ThreadPoolExecutor() as pool:
        stream = pool.submit(ask, server, CASES["top_logprobs"], stream=True)
        wait_until(lambda: bool(held(server)))
        # Requests that arrive during a pause are prefilled in one batch after it.
        post(server, "/pause_generation", mode="in_place")
        asked = {name: pool.submit(score, server, name) for name in SCORED}
        body = {**CASES["plain"].body(logprobs=True), "max_tokens": 0}
        chat = pool.submit(post, server, CHAT, **body)
        time.sleep(0.5)
        post(server, "/continue_generation")
        for name, meta_info in asked.items():
            assert_same_values(meta_info.result(), alone[name])
    [choice] = chat.result()["choices"]
    assert choice["token_ids"] == choice["logprobs"]["content"] == []
    assert_whole(stream.result())
    assert_equal(stream.result(), quiet)
    assert held_requests(server) == []


@pytest.mark.usefixtures("slow_engine")
@pytest.mark.parametrize("name", SCORINGS)
def test_a_scored_prompt_gets_the_scores_of_an_unpatched_server(
    rankers: tuple[Server, Server], release: str, name: str
) -> None:
    if name == "decisions" and not is_between(release, "0.5.21", ""):
        pytest.skip(f"SGLang {release} serves no decisions")
    patched, stock = rankers
    found = scores_when_idle(patched, name)
    params = {"max_new_tokens": 200, "temperature": 0, "ignore_eos": True}
    with ThreadPoolExecutor() as pool:
        other = pool.submit(
            post, patched, "/generate", input_ids=PROMPT, sampling_params=params
        )
        wait_until(lambda: bool(held(patched)))
        beside = [pool.submit(scores, patched, name) for _ in range(3)]
    found |= {one.result() for one in beside}
    assert len(other.result()["output_ids"]) == 200
    assert all(len(one) >= 2 for one in found)

    # To the bit, but the last bits depend on the batches that SGLang happens to make.
    wanted: set[tuple[float, ...]] = set()

    def has_all() -> bool:
        wanted.update(scores_when_idle(stock, name))
        return found <= wanted

    wait_until(has_all)


def test_an_engine_scores_like_an_unpatched_server(
    rankers: tuple[Server, Server], trees: Trees, tmp_path: Path
) -> None:
    _, stock = rankers
    (script := tmp_path / "engine.py").write_text(ENGINE)
    options = stock.options
    args = ("--model-path", options.model, *cpu.ARGS, "--log-level", "error")
    roots = os.pathsep.join(map(str, (trees.patched, cpu.SITE)))
    done = subprocess.run(
        [options.python, script, json.dumps(LABELS), *args],
        env={**os.environ, **cpu.ENV, **options.env, "PYTHONPATH": roots},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found = _flat(json.loads(done.stdout.splitlines()[-1]))
    assert found == pytest.approx(scores(stock, "IDs"), abs=LOGPROB_NOISE)
