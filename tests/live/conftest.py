"""Fixtures of the live tests: servers in each mode, and slowed-down ones."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Protocol

import pytest
import requests
from tokenizers import Tokenizer

from agentcore_patches.patches.releases import is_between
from agentcore_verify import cpu
from agentcore_verify.server import Server, ServerOptions
from tests.helpers import weights
from tests.helpers.bytecode import Bytecode
from tests.helpers.servers import MODES, Launch, Trees

PREFIX_CACHE = "AGENTCORE_PREFIX_CACHE_MB"
"""The variable by which a server remembers conversations."""

PREFIX_IGNORE = "AGENTCORE_PREFIX_IGNORE"
"""The variable with patterns of system text that is no part of a conversation."""

IGNORED = r"^<total_tokens>\d+ tokens left</total_tokens>$"
"""The pattern of the servers that remember."""

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("live")


@pytest.fixture
def options(
    sglang_python: Path,
    scripted_model: Path,
    bytecode: Bytecode,
    tmp_path: Path,
) -> ServerOptions:
    """Arguments of an unpatched server on the CPU; tests change those they need."""
    return ServerOptions(
        python=sglang_python,
        model=scripted_model,
        log=tmp_path / "server.log",
        args=("--tool-call-parser", "qwen25"),
        cpu=True,
        env={**cpu.TINY_MODEL_ENV, **bytecode.env},
        startup_timeout=240,
    )


# Package scope, not session scope: an idle server costs a hundredth of a core.
@pytest.fixture(scope="package")
def server(trees: Trees, launch: Launch, mode: str) -> Iterator[Server]:
    with launch(trees.patched, *MODES[mode]) as running:
        yield running


@pytest.fixture(scope="package")
def vanilla(trees: Trees, launch: Launch, mode: str, release: str) -> Iterator[Server]:
    """An unpatched server in the mode of `server`."""
    # In these releases, a custom sampler's values crash several workers.
    ends = is_between(release, "0.5.13", "0.5.14") and mode.startswith("two-workers")
    with launch(trees.vanilla, *MODES[mode], mirror_sampler=not ends) as running:
        yield running


@pytest.fixture
def forget(server: Server, release: str) -> Iterator[None]:
    """Drop the rejected requests that these releases leak, for the tests that follow."""
    yield
    if is_between(release, "0.5.10", "0.5.13.post1"):
        requests.delete(f"{server.base_url}/held_requests", timeout=10)


@pytest.fixture(scope="session")
def unbounded_model(
    scripted_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The scripted model, with a tokenizer that has no length limit."""
    folder = tmp_path_factory.mktemp("unbounded") / "model"
    return weights.without(scripted_model, folder, "model_max_length")


@pytest.fixture(scope="module", params=["default", "reasoning"])
def remembering(
    trees: Trees,
    launch: Launch,
    unbounded_model: Path,
    request: pytest.FixtureRequest,
) -> Iterator[Server]:
    """A server with a conversation memory, with and without a reasoning parser."""
    env = {PREFIX_CACHE: "1", PREFIX_IGNORE: IGNORED}
    args = MODES[request.param]
    with launch(trees.patched, *args, env=env, model=unbounded_model) as running:
        yield running


class PassesInSGLang(Protocol):
    """Fail if a test of a module failed; the first call runs the whole module."""

    def __call__(self, module: ModuleType, name: str, *args: object) -> None: ...


@pytest.fixture(scope="session")
def passes_in_sglang(
    sglang_python: Path, trees: Trees, bytecode: Bytecode
) -> PassesInSGLang:
    """Run tests on the patched tree, in the interpreter that has SGLang."""
    roots = (trees.patched, cpu.SITE, ROOT, ROOT / "verify", ROOT / "benchmarks")
    env = {**cpu.ENV, **bytecode.env, "PYTHONPATH": os.pathsep.join(map(str, roots))}

    @cache
    def run(module: ModuleType, *args: object) -> dict[str, str | None]:
        done = subprocess.run(
            [sglang_python, "-m", module.__name__, *map(str, args)],
            env={**os.environ, **env},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        print(done.stderr)
        found: dict[str, str | None] = json.loads(done.stdout.splitlines()[-1])
        return found

    def passes(module: ModuleType, name: str, *args: object) -> None:
        error = run(module, *args)[name]
        assert error is None, error

    return passes


@pytest.fixture(scope="session")
def tokenizer(scripted_model: Path) -> Tokenizer:
    return Tokenizer.from_file(str(scripted_model / "tokenizer.json"))
