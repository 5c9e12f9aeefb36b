"""Requests of prime-rl, a trainer written for vLLM, in order, with a weight update.

prime-rl is not on the package index. The requests, and the response fields that are
read, come from its sources.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests

from agentcore_verify.server import Server
from tests.helpers import weights
from tests.helpers.asking import LOGPROB_NOISE
from tests.helpers.endpoints import Json, prompt_of, send
from tests.helpers.servers import held
from tests.helpers.waiting import wait_until

GENERATE = "/inference/v1/generate"


def call(server: Server, path: str, **body: Any) -> None:
    """Send a control request, without a body if there are no fields."""
    response = requests.post(server.base_url + path, json=body or None, timeout=60)
    assert response.status_code == 200, response.text


def logprobs_of(choice: Json) -> list[float]:
    entries = choice["logprobs"]["content"]
    for token_id, entry in zip(choice["token_ids"], entries, strict=True):
        assert entry["token"] == f"token_id:{token_id}"
        assert entry["token_id"] == token_id
    return [entry["logprob"] for entry in entries]


# Slow enough for the update to hit an answer midway.
@pytest.mark.usefixtures("slow_engine")
@pytest.mark.parametrize("mode", ["default"], indirect=True)
def test_prime_rl(server: Server, scripted_model: Path, tmp_path: Path) -> None:
    base = server.base_url
    assert requests.get(f"{base}/health", timeout=60).status_code == 200
    [model] = requests.get(f"{base}/v1/models", timeout=10).json()["data"]
    assert model["max_model_len"] > 0
    prompt = [*[9, 8, 7] * 30, *prompt_of(server, "long")]

    def rollout(token_ids: list[int], step: int, **more: Any) -> Json:
        params: Json = {"temperature": 0, "max_tokens": 40, "logprobs": 1}
        params |= {"stop_token_ids": [2], "skip_special_tokens": False, **more}
        body = {"model": model["id"], "token_ids": token_ids, "cache_salt": str(step)}
        response = requests.post(
            base + GENERATE,
            json={**body, "sampling_params": params},
            headers={"X-Session-ID": "rollout-1"},
            timeout=60,
        )
        assert response.status_code == 200, response.text
        answer: Json = response.json()
        [choice] = answer["choices"]
        spans = choice["weight_versions"]
        assert spans[-1]["end"] == len(choice["token_ids"]) == len(logprobs_of(choice))
        cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
        names = [span["version"] for span in spans]
        return {**choice, "versions": names, "cached": cached}

    def update(folder: Path) -> None:
        call(server, "/pause?mode=keep&clear_cache=false")
        call(server, "/update_weights", weight_dir=str(folder))
        call(server, "/resume")

    try:
        first = rollout(prompt, 0)
        # The next turn starts with all tokens of the previous one.
        later = [*prompt, *first["token_ids"], 5, 6]
        turn = rollout(later, 0, routed_experts_prompt_start=len(later) - 3)
        assert turn["cached"] >= len(prompt)
        step_1 = weights.make(scripted_model, tmp_path / "step_1", weights.changed)
        with ThreadPoolExecutor(1) as pool:
            endless = {"ignore_eos": True, "max_tokens": 200, "stop_token_ids": []}
            running = pool.submit(rollout, prompt, 0, **endless)
            wait_until(lambda: bool(held(server)))
            # Scheduled in order: once this one is answered, the other has its first token.
            rollout([5], 0, max_tokens=1)
            update(step_1)
            across = running.result(timeout=60)
        assert across["versions"] == ["default", "step_1"]
        assert across["token_ids"][:3] == first["token_ids"][:3]
        # New weights have a separate cache, with a new salt or the old one.
        fresh = [rollout(prompt, salt) for salt in (1, 0)]
        assert [answer["cached"] for answer in fresh] == [0, 0]
        again = rollout(prompt, 1)
        assert again["cached"] == len(prompt) - 1
        wanted = pytest.approx(logprobs_of(fresh[0]), abs=LOGPROB_NOISE)
        for answer in (*fresh, again):
            assert answer["versions"] == ["step_1"]
            assert logprobs_of(answer) == wanted
        assert logprobs_of(first)[:3] != pytest.approx(
            logprobs_of(fresh[0])[:3], abs=LOGPROB_NOISE
        )
        # A teacher scores the rollout.
        whole = [*prompt, *fresh[0]["token_ids"]]
        scoring = {"max_tokens": 1, "prompt_logprobs": 1}
        scored = send(server, GENERATE, token_ids=whole, sampling_params=scoring).json()
        rows = [next(iter(one.values())) for one in scored["prompt_logprobs"][1:]]
        assert [row["logprob"] for row in rows[len(prompt) - 1 :]] == wanted
    finally:
        requests.post(f"{base}/resume", timeout=60)
        call(server, "/update_weights", weight_dir=str(scripted_model))
        version = {"new_version": "default", "abort_all_requests": False}
        call(server, "/update_weight_version", **version)
