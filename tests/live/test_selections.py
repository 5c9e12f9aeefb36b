"""The core alone, and with vLLM's API; other tests have all extras."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import requests

from agentcore_patches import apply, revert
from agentcore_patches.patches import registry
from agentcore_verify import checks
from agentcore_verify.checks.vllm_api import ROUTES
from agentcore_verify.subject import Subject
from tests.helpers.asking import CASES, ask, assert_equal
from tests.helpers.bytecode import Bytecode
from tests.helpers.endpoints import send
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
def test_the_core_and_the_selected_extras_pass_their_checks(
    original: Path,
    patched: Path,
    tmp_path: Path,
    launch: Launch,
    sglang_python: Path,
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
        subject = Subject(server.base_url, python=sglang_python, launched=True)
        expected = dict.fromkeys(checks.NAMES, "passed")
        expected |= {"images": "skipped", "reasoning": "not exercised"}
        if "vllm-api" not in extras:
            expected["vllm-api"] = "skipped"
            assert {subject.get(path).status_code for path in ROUTES} == {404}
        info = requests.get(f"{server.base_url}/server_info", timeout=10).json()
        assert ("vllm_config" in info) is ("vllm-api" in extras)
        patches = info["agentcore_patches"]["patches"]
        assert patches == ["core", *extras]
        for check in map(checks.get, checks.NAMES):
            result = check.without_extra(tuple(patches)) or check.run(subject)
            assert result.outcome.value == expected[check.name], result

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
