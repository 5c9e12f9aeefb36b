"""The core alone, and with vLLM's API; other tests have all extras."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests

from agentcore_patches import apply, revert
from agentcore_patches.patches import registry
from agentcore_verify import client
from agentcore_verify.probe import MIRROR_KEY
from tests.helpers.asking import CASES, ask, assert_equal, assert_whole
from tests.helpers.bytecode import Bytecode
from tests.helpers.endpoints import VLLM_GENERATE, send
from tests.helpers.servers import Launch
from tests.helpers.trees import contents


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
    apply(sglang_dir=package, extras=["all"])
    return package


@pytest.mark.parametrize("extras", [(), ("vllm-api",)], ids="+".join)
def test_the_core_and_the_selected_extras_are_served(
    original: Path,
    patched: Path,
    tmp_path: Path,
    launch: Launch,
    extras: tuple[str, ...],
) -> None:
    package = shutil.copytree(patched, tmp_path / "sglang")
    # After all extras were in place.
    apply(
        sglang_dir=package,
        extras=extras,
        without=[name for name in registry.extras() if name not in extras],
    )

    with launch(tmp_path, "--stream-output") as server:
        case = CASES["two tool calls"]
        whole, streamed = ask(server, case), ask(server, case, stream=True)
        assert_whole(streamed)
        assert_equal(streamed, whole)

        [choice] = client.chat(
            server.base_url,
            **CASES["plain"].body(
                input_ids=[5, 6], return_prompt_token_ids=True, return_meta_info=True
            ),
        )["choices"]
        assert choice["prompt_token_ids"] == [5, 6] and "meta_info" in choice

        body: dict[str, Any] = {
            "input_ids": [5, 6, 7],
            "sampling_params": {"max_new_tokens": 120, "ignore_eos": True},
        }
        output = client.generate(server.base_url, **body)
        assert output["meta_info"][MIRROR_KEY] == output["output_ids"]
        chunks = client.generate_stream(server.base_url, **body)
        assert sum(len(chunk["output_ids"]) for chunk in chunks) == 120

        has_vllm = "vllm-api" in extras
        asked = send(
            server,
            VLLM_GENERATE,
            token_ids=[5, 6, 7],
            sampling_params={"max_tokens": 3},
        )
        assert asked.status_code == (200 if has_vllm else 404)
        if has_vllm:
            [choice] = asked.json()["choices"]
            assert choice["weight_versions"] == [
                {"version": "default", "start": 0, "end": 3}
            ]
        is_paused = requests.get(f"{server.base_url}/is_paused", timeout=10)
        assert is_paused.status_code == asked.status_code
        info = requests.get(f"{server.base_url}/server_info", timeout=10).json()
        assert ("vllm_config" in info) is has_vllm
        assert info["agentcore_patches"]["patches"] == ["core", *extras]

    revert(sglang_dir=package)
    assert contents(package, "*.py") == contents(original, "*.py")


def test_the_core_alone_serves_several_tokenizer_workers(
    patched: Path, tmp_path: Path, launch: Launch
) -> None:
    package = shutil.copytree(patched, tmp_path / "sglang")
    apply(sglang_dir=package, without=["all"])
    with launch(tmp_path, "--tokenizer-worker-num", "2") as server:
        for _ in range(4):
            whole = ask(server, CASES["n = 2"])
            assert_equal(ask(server, CASES["n = 2"], stream=True), whole)
            # A pause that would reach one worker alone is refused.
            paused = send(server, "/pause_generation", mode="abort")
            if paused.status_code == 200:
                assert send(server, "/continue_generation").status_code == 200
            else:
                assert paused.status_code == 400
