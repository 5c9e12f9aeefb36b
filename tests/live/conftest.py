"""What the live tests share: an interpreter with SGLang, the scripted model, servers."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from agentcore_verify.scripted_model import ensure_scripted_model
from agentcore_verify.server import ServerOptions

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything here as live."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("live")


@pytest.fixture(scope="session")
def sglang_python() -> Path:
    """An interpreter with SGLang: $AGENTCORE_TEST_PYTHON, or the one running now."""
    if named := os.environ.get("AGENTCORE_TEST_PYTHON"):
        return Path(named)
    if importlib.util.find_spec("sglang"):
        return Path(sys.executable)
    pytest.skip("no SGLang here, and AGENTCORE_TEST_PYTHON names no interpreter")


@pytest.fixture(scope="session")
def scripted_model(sglang_python: Path) -> Path:
    """Folder of the scripted model."""
    return ensure_scripted_model(sglang_python)


@pytest.fixture(scope="session")
def sglang_package(sglang_python: Path) -> Path:
    """The installed `sglang` package folder, never to be changed."""
    code = "import importlib.util as u; print(u.find_spec('sglang').origin)"
    found = subprocess.run(
        [sglang_python, "-c", code], capture_output=True, text=True, check=True
    )
    return Path(found.stdout.strip()).parent


@pytest.fixture(scope="session")
def vanilla_tree(sglang_package: Path) -> Callable[[Path], Path]:
    """A copy of the installed package: `vanilla_tree(folder)` makes `folder/sglang`."""

    def copy(folder: Path) -> Path:
        return Path(shutil.copytree(sglang_package, folder / "sglang"))

    return copy


@pytest.fixture(scope="session")
def bytecode(pytestconfig: pytest.Config) -> dict[str, str]:
    """Environment in which servers keep compiled modules; saves 15 s at each start."""
    folder = pytestconfig.cache.mkdir("bytecode")
    return {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(folder)}


@pytest.fixture
def options(
    sglang_python: Path,
    scripted_model: Path,
    bytecode: dict[str, str],
    tmp_path: Path,
) -> ServerOptions:
    """A vanilla server on the CPU; tests replace in it what they are about."""
    return ServerOptions(
        python=sglang_python,
        model=scripted_model,
        log=tmp_path / "server.log",
        args=("--tool-call-parser", "qwen25"),
        cpu=True,
        env=bytecode,
        startup_timeout=240,
    )
