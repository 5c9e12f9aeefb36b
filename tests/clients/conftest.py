"""Environments with one client each, and a router in front of the server."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentcore_verify.server import Server, free_port
from tests.helpers.asking import CASES, ask
from tests.helpers.peers import running
from tests.live import conftest as live

SCRIPTS = Path(__file__).parent / "scripts"
BIN = Path(sys.executable).parent

Environment = Callable[[str], Path]
"""Gives the interpreter of an environment that has a requirement installed."""

RunScript = Callable[[str, str, dict[str, Any]], dict[str, Any]]
"""Runs a script in the environment of a requirement, on a task."""

Ask = Callable[..., dict[str, list[Any]]]
"""Runs a script in an environment; what the client has after each way of asking."""

INSTALLED: dict[str, tuple[tuple[str, ...], ...]] = {
    # SkyRL's client does not import Ray, PyTorch and Transformers.
    "skyrl==0.3.0": (("--no-deps", "skyrl==0.3.0"), ("aiohttp", "pydantic")),
    # With the PyTorch of SGLang 0.5.9, which is in the cache.
    "trl==1.16.0": (("trl==1.16.0", "requests", "torch==2.9.1"),),
}
"""Steps that install a requirement which needs more than itself."""

NEWER_PYTHON = {"skyrl==0.3.0"}
"""Clients that need Python 3.12 or newer, although their metadata allows older ones."""

# Servers last as long as the tests of a package.
server = live.server


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    made: dict[str, Path] = {}
    uv: list[str | Path] = [BIN / "uv", "--quiet"]

    def make(requirement: str) -> Path:
        if requirement not in made:
            folder = tmp_path_factory.mktemp("client")
            python = folder / "bin/python"
            base = newer_python() if requirement in NEWER_PYTHON else sys.executable
            commands: list[list[str | Path]] = [
                ["venv", "--clear", "--python", base, folder]
            ]
            for step in INSTALLED.get(requirement, ((requirement,),)):
                commands.append(["pip", "install", "--python", python, *step])
            for command in commands:
                subprocess.run([*uv, *command], check=True)
            made[requirement] = python
        return made[requirement]

    return make


def newer_python() -> str | Path:
    """Return a Python from 3.12 on, of the system or of pyenv; skip if there is none."""
    if sys.version_info >= (3, 12):
        return sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for name in ("python3.12", "python3.13"):
        # pyenv's own command of this name fails unless the version is chosen.
        for python in pyenv.glob(
            f"versions/{name.removeprefix('python')}.*/bin/{name}"
        ):
            return python
        if found := shutil.which(name):
            return found
    pytest.skip("this client needs Python 3.12 or newer, which is not installed")


@pytest.fixture(scope="session")
def run_script(environment: Environment) -> RunScript:
    def run(requirement: str, script: str, task: dict[str, Any]) -> dict[str, Any]:
        done = subprocess.run(
            [environment(requirement), SCRIPTS / "run.py", script],
            input=json.dumps(task),
            capture_output=True,
            text=True,
            timeout=480,
            # verifiers calls uv.
            env={**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"},
        )
        assert done.returncode == 0, done.stderr
        # Some clients print messages of their own first.
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    return run


@pytest.fixture
def ask_by(run_script: RunScript, server: Server) -> Ask:
    def run(
        requirement: str,
        script: str,
        *,
        base_url: str = server.base_url,
        completions: bool = True,
    ) -> dict[str, list[Any]]:
        answer = ask(server, CASES["emoji"])
        task = {
            "base_url": base_url,
            "messages": CASES["emoji"].body()["messages"],
            "prompt": answer.prompt_token_ids,
            "completions": completions,
        }
        return run_script(requirement, script, task)

    return run


@pytest.fixture
def router(environment: Environment, server: Server, tmp_path: Path) -> Iterator[str]:
    """The URL of an sglang-router in front of the server."""
    python = environment("sglang-router==0.3.2")
    command: list[str | Path] = [
        *(python, "-m", "sglang_router.launch_router"),
        *("--prometheus-host", "127.0.0.1", "--prometheus-port", str(free_port())),
        *("--worker-urls", server.base_url),
    ]
    with running(command, free_port(), "/readiness", tmp_path / "router.log") as url:
        yield url
