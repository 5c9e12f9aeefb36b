"""The core alone; other tests have all extras."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import requests

from agentcore_patches import apply, revert
from agentcore_patches.patches.releases import is_between
from agentcore_verify import checks
from agentcore_verify.checks.vllm_api import ROUTES
from agentcore_verify.subject import Subject
from tests.helpers.bytecode import Bytecode
from tests.helpers.servers import Launch
from tests.helpers.trees import contents


def test_the_core_alone_passes_its_checks(
    vanilla_tree: Callable[[Path], Path],
    bytecode: Bytecode,
    tmp_path: Path,
    launch: Launch,
    sglang_python: Path,
    release: str,
) -> None:
    package = vanilla_tree(tmp_path)
    original = contents(package, "*.py")
    bytecode.give_to(package)
    apply(sglang_dir=package, extras=["all"])
    apply(sglang_dir=package, without=["all"])

    with launch(tmp_path, "--stream-output", "--tokenizer-worker-num", "2") as server:
        subject = Subject(server.base_url, python=sglang_python, launched=True)
        expected = dict.fromkeys(checks.NAMES, "passed")
        expected |= dict.fromkeys(("images", "vllm-api"), "skipped")
        expected["reasoning"] = "not exercised"
        if is_between(release, "", "0.5.11"):
            expected |= dict.fromkeys(("pauses", "weight-versions"), "skipped")
        assert {subject.get(path).status_code for path in ROUTES} == {404}
        # Before the checks: a worker must answer this without having had a request.
        info = requests.get(f"{server.base_url}/server_info", timeout=10).json()
        assert "vllm_config" not in info
        patches = info["agentcore_patches"]["patches"]
        assert patches == ["core"]
        for check in map(checks.get, checks.NAMES):
            result = check.run(subject, check.without_extra(tuple(patches)))
            assert result.outcome.value == expected[check.name], result

    revert(sglang_dir=package)
    assert contents(package, "*.py") == original
