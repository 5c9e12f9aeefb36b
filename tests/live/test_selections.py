"""Each patch alone, and all but each: exactly the selected behaviour is there."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import requests

from agentcore_patches import apply, revert
from agentcore_patches.patches.registry import names
from agentcore_patches.patches.releases import is_between
from agentcore_verify import client
from agentcore_verify.probe import MIRROR_KEY
from agentcore_verify.server import Server
from tests.helpers.asking import CASES, ask, assert_equal, assert_whole
from tests.helpers.bytecode import Bytecode
from tests.helpers.endpoints import send
from tests.helpers.servers import Launch
from tests.helpers.trees import contents

SELECTIONS = [*combinations(names(), 1), *combinations(names(), len(names()) - 1)]


@pytest.fixture(scope="module")
def original(
    vanilla_tree: Callable[[Path], Path],
    bytecode: Bytecode,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    package = vanilla_tree(tmp_path_factory.mktemp("original"))
    bytecode.give_to(package)
    return package


@pytest.fixture(scope="module")
def patched(original: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("patched")
    package = shutil.copytree(original, folder / "sglang")
    apply(sglang_dir=package)
    return package


def assert_aborted(server: Server, body: dict[str, Any]) -> None:
    """Check that an aborted answer has the length of its prompt."""
    rid = "aborted"
    with ThreadPoolExecutor(1) as pool:
        params = {**body["sampling_params"], "max_new_tokens": 6000}
        asked = pool.submit(
            client.generate,
            server.base_url,
            **{**body, "rid": rid, "sampling_params": params},
        )
        # SGLang ignores an abort that comes before the request.
        while not asked.done():
            client.post(server.base_url + "/abort_request", {"rid": rid})
        meta_info = asked.result()["meta_info"]
    assert meta_info["finish_reason"]["type"] == "abort"
    assert meta_info["prompt_tokens"] == len(body["input_ids"])


@pytest.mark.parametrize("selection", SELECTIONS, ids="+".join)
def test_a_selection_has_exactly_the_selected_behaviour(
    original: Path,
    patched: Path,
    tmp_path: Path,
    launch: Launch,
    release: str,
    selection: tuple[str, ...],
) -> None:
    package = shutil.copytree(patched, tmp_path / "sglang")
    # Selected in another order, and after another selection was in place.
    apply(sglang_dir=package, only=tuple(reversed(selection)))

    with launch(tmp_path, "--stream-output") as server:
        case = CASES["two tool calls"]
        # The last two include the first.
        if {"token-ids", "weight-versions", "vllm-api"} & set(selection):
            whole, streamed = ask(server, case), ask(server, case, stream=True)
            assert_whole(streamed)
            assert_equal(streamed, whole)
        else:
            for stream in (False, True):
                answer = ask(server, case, stream=stream)
                assert answer.prompt_token_ids is None
                assert answer.completions[0].token_ids is None

        [choice] = client.chat(
            server.base_url,
            **CASES["plain"].body(
                input_ids=[5, 6], return_prompt_token_ids=True, return_meta_info=True
            ),
        )["choices"]
        # SGLang has both since this release.
        is_native = is_between(release, "0.5.13", "")
        tito = is_native or "tito" in selection
        assert choice.get("prompt_token_ids") == ([5, 6] if tito else None)
        assert ("meta_info" in choice) is tito

        body: dict[str, Any] = {
            "input_ids": [5, 6, 7],
            "sampling_params": {"max_new_tokens": 120, "ignore_eos": True},
        }
        output = client.generate(server.base_url, **body)
        whole_info = output["meta_info"][MIRROR_KEY] == output["output_ids"]
        assert whole_info is (is_native or "customized-info" in selection)
        if {*selection} - {"tito", "fast-answers"}:
            chunks = client.generate_stream(server.base_url, **body)
            assert sum(len(chunk["output_ids"]) for chunk in chunks) == 120
            assert_aborted(server, body)

        asked = send(
            server,
            "/inference/v1/generate",
            token_ids=[5, 6, 7],
            sampling_params={"max_tokens": 3},
        )
        assert asked.status_code == (200 if "vllm-api" in selection else 404)
        if "vllm-api" in selection:
            [choice] = asked.json()["choices"]
            assert choice["weight_versions"] == [
                {"version": "default", "start": 0, "end": 3}
            ]
        is_paused = requests.get(f"{server.base_url}/is_paused", timeout=10)
        assert is_paused.status_code == asked.status_code
        info = requests.get(f"{server.base_url}/server_info", timeout=10).json()
        assert ("vllm_config" in info) is ("vllm-api" in selection)

    revert(sglang_dir=package)
    assert contents(package, "*.py") == contents(original, "*.py")
