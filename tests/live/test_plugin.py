"""The guard, as SGLang's plugin: no server starts without the patches that it requires."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agentcore_patches import __version__, apply, plugin
from agentcore_patches.patches.releases import is_between
from agentcore_verify import cpu
from agentcore_verify.server import Server, ServerOptions
from tests.helpers.bytecode import Bytecode
from tests.helpers.servers import Trees

ROOT = Path(__file__).parents[2]
NAME = f"agentcore-patch {__version__}:"
IN_PLACE = f"{NAME} core and vllm-api are in place."

WAYS = {
    "serve": ("-c", "from sglang.cli.main import main; main()", "serve"),
    "launch_server": ("-m", "sglang.launch_server"),
    "Engine": ("-c", "import sys, sglang; sglang.Engine(model_path=sys.argv[2])"),
}


@pytest.fixture
def site(release: str, tmp_path: Path) -> Path:
    """A folder from which SGLang imports agentcore-patches, with its entry points."""
    if not is_between(release, "0.5.11", ""):
        pytest.skip(f"SGLang {release} loads no plugins")
    (tmp_path / "agentcore_patches").symlink_to(ROOT / "agentcore_patches")
    metadata = tmp_path / "agentcore_patches-0.dist-info"
    metadata.mkdir()
    installed = importlib.metadata.distribution("agentcore-patches")
    for name in ("METADATA", "entry_points.txt"):
        (metadata / name).write_text(installed.read_text(name) or "")
    return tmp_path


@pytest.mark.parametrize("way", WAYS)
def test_no_server_starts_without_the_patches_that_it_requires(
    way: str, site: Path, trees: Trees, options: ServerOptions
) -> None:
    paths = (trees.vanilla, cpu.SITE, site)
    done = subprocess.run(
        [options.python, *WAYS[way], "--model-path", options.model, *cpu.ARGS],
        env={
            **{**os.environ, **cpu.ENV, **options.env},
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            plugin.REQUIRE: "core",
        },
        capture_output=True,
        text=True,
        timeout=options.startup_timeout,
    )
    assert done.returncode == plugin.EXIT_CODE, done.stderr
    told = [line for line in done.stderr.splitlines() if NAME in line]
    assert len(told) == 1 and told[0].startswith("error: ")
    assert told[0].endswith(
        f"in {trees.vanilla / 'sglang'} is not patched: run `agentcore-patch apply`."
    )


def test_a_patched_server_starts_and_logs_one_line(
    site: Path,
    vanilla_tree: Callable[[Path], Path],
    bytecode: Bytecode,
    options: ServerOptions,
) -> None:
    package = vanilla_tree(site / "patched")
    bytecode.give_to(package)
    apply(sglang_dir=package, extras=["vllm-api"])
    required = replace(
        options,
        pythonpath=(package.parent, site),
        env={**options.env, plugin.REQUIRE: "core,vllm-api"},
    )
    with Server(required) as server:
        assert server.log.read_text().count(IN_PLACE) == 1
