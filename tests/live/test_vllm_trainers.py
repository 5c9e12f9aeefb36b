"""Requests of trainers written for vLLM, in order, with weight updates between.

prime-rl and vime are not on the package index. The requests, and the response fields
that are read, come from their sources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests

from agentcore_verify.server import Server
from agentcore_verify.subject import Subject
from tests.helpers import weights
from tests.helpers.asking import LOGPROB_NOISE
from tests.helpers.endpoints import Json, prompt_of, send
from tests.helpers.servers import held
from tests.helpers.waiting import wait_until

GENERATE = "/inference/v1/generate"

pytestmark = pytest.mark.parametrize("mode", ["default"], indirect=True)

MakeWeights = Callable[[str, Callable[[weights.Tensors], None]], Path]


@pytest.fixture(scope="module")
def make_weights(
    scripted_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> MakeWeights:
    """Make a folder of this name with other weights."""
    folder = tmp_path_factory.mktemp("weights")

    def make(name: str, change: Callable[[weights.Tensors], None]) -> Path:
        return weights.make(scripted_model, folder / name, change)

    return make


@pytest.fixture
def restored(server: Server, scripted_model: Path) -> Iterator[Server]:
    """The server, whose own weights are restored afterwards."""
    yield server
    requests.post(f"{server.base_url}/resume", timeout=60)
    call(server, "/update_weights", weight_dir=str(scripted_model))
    version = {"new_version": "default", "abort_all_requests": False}
    call(server, "/update_weight_version", **version)


def call(server: Server, path: str, **body: Any) -> None:
    """Send a control request, without a body if there are no fields."""
    response = requests.post(server.base_url + path, json=body or None, timeout=60)
    assert response.status_code == 200, response.text


def logprobs_of(choice: Json) -> list[float]:
    found = []
    for token_id, entry in zip(
        choice["token_ids"], choice["logprobs"]["content"], strict=True
    ):
        assert entry["token"] == f"token_id:{token_id}"
        assert entry["token_id"] == token_id
        found.append(entry["logprob"])
    return found


# Slow enough for the update to hit an answer midway.
@pytest.mark.usefixtures("slow_engine")
def test_prime_rl(restored: Server, make_weights: MakeWeights) -> None:
    server, base = restored, restored.base_url
    assert requests.get(f"{base}/health", timeout=60).status_code == 200
    assert requests.get(f"{base}/liveness", timeout=10).status_code == 200
    [model] = requests.get(f"{base}/v1/models", timeout=10).json()["data"]
    assert model["max_model_len"] > 0
    prompt = [*[9, 8, 7] * 30, *prompt_of(server, "long")]

    def rollout(token_ids: list[int], step: int, **more: Any) -> Json:
        params: Json = {"temperature": 0, "max_tokens": 40, "logprobs": 1}
        params |= {"stop_token_ids": [2], "skip_special_tokens": False, **more}
        body = {
            "model": model["id"],
            "token_ids": token_ids,
            "sampling_params": params,
            "cache_salt": str(step),
        }
        headers = {"X-Session-ID": "rollout-1"}
        response = requests.post(
            base + GENERATE, json=body, headers=headers, timeout=60
        )
        assert response.status_code == 200, response.text
        answer: Json = response.json()
        [choice] = answer["choices"]
        versions = choice["weight_versions"]
        assert (
            versions[-1]["end"] == len(choice["token_ids"]) == len(logprobs_of(choice))
        )
        cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
        names = [span["version"] for span in versions]
        return {**choice, "versions": names, "cached": cached}

    def update(folder: Path) -> None:
        call(server, "/pause?mode=keep&clear_cache=false")
        call(server, "/update_weights", weight_dir=str(folder))
        call(server, "/resume")

    first = rollout(prompt, 0)
    # The next turn starts with all tokens of the previous one.
    later = [*prompt, *first["token_ids"], 5, 6]
    turn = rollout(later, 0, routed_experts_prompt_start=len(later) - 3)
    assert turn["cached"] >= len(prompt)
    step_1 = make_weights("step_1", weights.changed)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(
            rollout, prompt, 0, ignore_eos=True, max_tokens=200, stop_token_ids=[]
        )
        wait_until(lambda: bool(held(server)))
        update(step_1)
        across = running.result(timeout=60)
    assert across["versions"] == ["default", "step_1"]
    assert across["token_ids"][:3] == first["token_ids"][:3]
    # New weights have a separate cache, with a new salt or the old one.
    fresh = [rollout(prompt, salt) for salt in (1, 0)]
    assert [answer["cached"] for answer in fresh] == [0, 0]
    again = rollout(prompt, 1)
    assert again["cached"] == len(prompt) - 1
    for answer in (*fresh, again):
        assert answer["versions"] == ["step_1"]
        assert logprobs_of(answer) == pytest.approx(
            logprobs_of(fresh[0]), abs=LOGPROB_NOISE
        )
    assert logprobs_of(fresh[0])[:3] != pytest.approx(
        logprobs_of(first)[:3], abs=LOGPROB_NOISE
    )
    # A teacher scores the rollout.
    whole = [*prompt, *fresh[0]["token_ids"]]
    scoring = {"max_tokens": 1, "prompt_logprobs": 1}
    scored = send(server, GENERATE, token_ids=whole, sampling_params=scoring).json()
    values = [
        next(iter(one.values()))["logprob"] for one in scored["prompt_logprobs"][1:]
    ]
    assert values[len(prompt) - 1 :] == pytest.approx(
        logprobs_of(fresh[0]), abs=LOGPROB_NOISE
    )


def test_vime(restored: Server, make_weights: MakeWeights) -> None:
    server, base = restored, restored.base_url
    assert requests.get(f"{base}/health", timeout=60).status_code == 200
    model = Subject(base).served_model()
    info = requests.get(f"{base}/server_info?config_format=json", timeout=10).json()
    parallel = info["vllm_config"]["parallel_config"]
    for kind in ("tensor", "pipeline", "data"):
        assert parallel[f"{kind}_parallel_size"] == 1
    prompt = [*[7, 8, 9] * 30, *prompt_of(server, "long")]

    def rollout(**more: Any) -> Json:
        params: Json = {"max_tokens": 20, "temperature": 0, "top_p": 1.0}
        params |= {"logprobs": 1}
        params |= {"top_k": -1, "stop": None, "include_stop_str_in_output": True}
        params |= {"stop_token_ids": [2], "seed": 7, "skip_special_tokens": False}
        params |= {"routed_experts_prompt_start": 0, **more}
        body = {"model": model, "token_ids": prompt, "sampling_params": params}
        headers = {"x-session-id": "sample-1"}
        response = requests.post(
            base + GENERATE, json=body, headers=headers, timeout=60
        )
        assert response.status_code == 200, response.text
        answer: Json = response.json()
        assert answer["usage"]["prompt_tokens"] == len(prompt)
        [choice] = answer["choices"]
        assert len(logprobs_of(choice)) == len(choice["token_ids"])
        return {**choice, "usage": answer["usage"]}

    def in_flight() -> int:
        url = f"{base}/load?include_inflight=true&inflight_limit=100"
        count: int = requests.get(url, timeout=10).json()["server_load"]
        return count

    before = rollout()
    step_3 = make_weights("step_3", weights.mute)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(
            rollout, ignore_eos=True, max_tokens=6000, stop_token_ids=[]
        )
        wait_until(lambda: in_flight() == 1)
        call(server, "/pause?mode=abort")
        aborted = running.result(timeout=60)
        wait_until(lambda: in_flight() == 0)
    assert aborted["finish_reason"] == "abort"
    n_same = min(len(aborted["token_ids"]), len(before["token_ids"]))
    assert aborted["token_ids"][:n_same] == before["token_ids"][:n_same]
    reload: Json = {"weights_path": str(step_3), "is_checkpoint_format": True}
    call(server, "/collective_rpc", method="reload_weights", kwargs=reload)
    call(server, "/reset_prefix_cache")
    call(server, "/resume")
    after = rollout()
    assert set(after["token_ids"]) == {weights.MUTE_TOKEN}
    assert after["weight_versions"] == [{"version": "step_3", "start": 0, "end": 20}]
    assert after["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    # Its other ways to update weights are refused, and the server goes on.
    for path in ("/init_weight_transfer_engine", "/start_weight_update"):
        assert send(server, path, init_info={}).status_code == 501
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(
            rollout, ignore_eos=True, max_tokens=6000, stop_token_ids=[]
        )
        wait_until(lambda: in_flight() == 1)
        call(server, "/abort_requests")
        assert running.result(timeout=60)["finish_reason"] == "abort"
        wait_until(lambda: in_flight() == 0)
