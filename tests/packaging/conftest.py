"""The built package, and environments to install it in, as a user has them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.bytecode import Bytecode
from tests.helpers.once import once
from tests.packaging.scratch import Scratch, add_rest, make_scratch, repack, rest_of

ROOT = Path(__file__).parents[2]

# The package layout of SGLang's own file; the rest of it does not matter here.
CHECKOUT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "sglang"
version = "0.5.9"

[tool.setuptools.packages.find]
include = ["sglang*"]
"""


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clean copy of the project."""
    made = shutil.ignore_patterns(
        *("__pycache__", ".*", "build", "dist", "*.egg-info"),
    )
    return shutil.copytree(ROOT, tmp_path_factory.mktemp("tree") / "tree", ignore=made)


@pytest.fixture(scope="session")
def dist(tree: Path, run_folder: Path) -> Path:
    """A folder with the sdist and the wheel that `python -m build` makes of it."""

    def build(folder: Path) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "build", "--outdir", folder, tree],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    return once(run_folder / "dist", build)


@pytest.fixture(scope="session")
def with_dist(dist: Path) -> dict[str, str]:
    """Environment in which pip and uv find the built package by its name."""
    between = {"PIP_FIND_LINKS": " ", "UV_FIND_LINKS": ","}
    return {
        name: separator.join(filter(None, [os.environ.get(name), str(dist)]))
        for name, separator in between.items()
    }


@pytest.fixture(scope="session")
def empty_scratch(
    sglang_python: Path,
    scripted_model: Path,
    with_dist: dict[str, str],
    bytecode: Bytecode,
    tmp_path_factory: pytest.TempPathFactory,
    rest: Path,
    sglang_wheel: Path,
) -> Callable[[], Scratch]:
    """Make environments with everything installed except SGLang and this package."""

    def make() -> Scratch:
        folder = tmp_path_factory.mktemp("scratch") / "scratch"
        links = f"{with_dist['PIP_FIND_LINKS']} {sglang_wheel.parent}"
        env = {**with_dist, **bytecode.env, "PIP_FIND_LINKS": links, "PIP_COMPILE": "0"}
        scratch = make_scratch(folder, sglang_python, env)
        add_rest(scratch, rest)
        return scratch

    return make


@pytest.fixture(scope="session")
def rest(sglang_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SGLang's installed dependencies."""
    return rest_of(sglang_python, tmp_path_factory.mktemp("rest"))


@pytest.fixture(scope="session")
def sglang_wheel(
    sglang_package: Path,
    vanilla_tree: Callable[[Path], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """SGLang's wheel, as an index has it."""
    [info] = sglang_package.parent.glob("sglang-*.dist-info")
    package = vanilla_tree(tmp_path_factory.mktemp("vanilla"))
    return repack(package, info, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def wheel_scratch(
    empty_scratch: Callable[[], Scratch], sglang_wheel: Path, bytecode: Bytecode
) -> Callable[[], Scratch]:
    """Make environments with SGLang from its wheel."""

    def make() -> Scratch:
        scratch = empty_scratch()
        scratch.ok(f"uv pip install --no-deps --link-mode copy '{sglang_wheel}'")
        bytecode.give_to(scratch.site / "sglang")
        return scratch

    return make


@pytest.fixture(scope="session")
def checkout(sglang_wheel: Path, bytecode: Bytecode) -> Callable[[Path], Path]:
    """Turn a folder into `python` of SGLang's repository; return it."""

    def make(folder: Path) -> Path:
        with zipfile.ZipFile(sglang_wheel) as wheel:
            inside = [name for name in wheel.namelist() if name.startswith("sglang/")]
            wheel.extractall(folder, inside)
        (folder / "pyproject.toml").write_text(CHECKOUT)
        bytecode.give_to(folder / "sglang")
        return folder

    return make


@pytest.fixture
def checkout_scratch(
    empty_scratch: Callable[[], Scratch], checkout: Callable[[Path], Path]
) -> Scratch:
    """An environment with SGLang as an editable checkout in sgl-workspace/sglang."""
    scratch = empty_scratch()
    folder = checkout(scratch.folder / "sgl-workspace/sglang/python")
    scratch.ok(f"pip install --no-deps --editable '{folder}'")
    return scratch


@pytest.fixture
def checkout_scratch_beside_wheel(
    checkout_scratch: Scratch, sglang_wheel: Path
) -> Scratch:
    """An environment that imports SGLang from a wheel, although a checkout exists."""
    install = "uv pip install --no-deps --link-mode copy"
    checkout_scratch.ok(f"{install} --reinstall '{sglang_wheel}'")
    return checkout_scratch


@pytest.fixture
def uv_scratch(
    sglang_python: Path,
    scripted_model: Path,
    with_dist: dict[str, str],
    bytecode: Bytecode,
    tmp_path: Path,
    rest: Path,
    sglang_wheel: Path,
) -> Callable[[str], Scratch]:
    """Make environments with uv, which links SGLang from one cache."""

    def make(name: str) -> Scratch:
        env = {**with_dist, **bytecode.env, "UV_CACHE_DIR": str(tmp_path / "cache")}
        scratch = make_scratch(tmp_path / name, sglang_python, env, with_pip=False)
        add_rest(scratch, rest)
        scratch.ok(f"uv pip install --no-deps --link-mode hardlink '{sglang_wheel}'")
        bytecode.give_to(scratch.site / "sglang")
        return scratch

    return make
