"""Shared fixtures: an interpreter with SGLang, the model, copies of its package.

Several processes may run the suite (pytest-xdist). Tests that share a server run in one
process.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from agentcore_patches import apply, revert
from agentcore_patches.installs.install import find
from agentcore_verify import cpu
from agentcore_verify.scripted_model import ensure_scripted_model
from agentcore_verify.server import Server, ServerOptions
from tests.helpers.bytecode import Bytecode
from tests.helpers.forking import ForkedServer, ForkServer
from tests.helpers.once import once
from tests.helpers.servers import (
    HELD_REQUESTS,
    MODES,
    SPOIL,
    THROTTLE,
    THROTTLE_FILE,
    Launch,
    Trees,
    arguments_of,
    release_of,
    run_on_cpu,
)

HERE = Path(__file__).parent
ROOT = HERE.parent

LONGEST_FIRST = (
    *("packaging", "live", "faults", "cluster", "hostile"),
    *("versions", "clients", "sglang_sources", "unit"),
)
"""Folders by what their longest group of tests takes; any other one comes before."""

THOROUGH = (
    *("clients", "cluster", "site"),
    *("faults/test_crowd.py", "faults/test_places.py"),
    "live/test_audit.py",
    "live/test_defaults.py",
    "live/test_fast_answers.py",
    "live/test_images.py",
    "live/test_metrics.py",
    "live/test_not_finite.py",
    "live/test_odd_tokenizers.py",
    "live/test_pressure.py",
    "live/test_request_fields.py",
    "live/test_routed_experts.py",
    "live/test_scoring.py",
    "live/test_selections.py",
    "live/test_serve.py",
    "live/test_server.py",
    "live/test_training.py",
    "live/test_verify.py",
    "live/test_verify_failures.py",
    "packaging/test_examples.py",
    "packaging/test_leftovers.py",
    "packaging/test_workflows.py",
    "sglang_sources/test_api_page.py",
    "sglang_sources/test_extras.py",
    "sglang_sources/test_forks.py",
    "sglang_sources/test_mutants.py",
    "sglang_sources/test_other_releases.py",
    "sglang_sources/test_others.py",
    "sglang_sources/test_seams.py",
    "sglang_sources/test_unlisted.py",
)
"""Folders and modules that `make test` leaves to `make test-all`."""

QUICK: Mapping[str, Mapping[str, tuple[object, ...]]] = {
    "faults/test_injection.py": {
        "share": ("every tenth call",),
        "error": ("EIO",),
        "kind": ("rename",),
    },
    "live": {"mode": ("default",), "remembering": ("default",)},
    # The README runs `verify` in the default mode.
    "live/test_verify_defects.py": {"mode": ("reasoning",), "nth_of_check": (0,)},
    "live/test_weight_versions.py": {"way": ("overlap",)},
    "packaging/test_documents.py": {
        "path": (ROOT / "README.md", ROOT / "docs/tutorial.md")
    },
    "sglang_sources": {"version": ("0.5.8", "0.5.9", "0.5.13", "0.5.17", "0.5.23")},
}
"""Values of parameters that `make test` runs, by folder or module.

`make test-all` runs the other values.
"""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep tests that share a server together: those of a mode, or else of a module.

    The groups that take longest come first, so that all processes end at the same time.
    """
    items.sort(key=_turn)
    for item in items:
        callspec = getattr(item, "callspec", None)
        mode = callspec.params.get("mode") if callspec else None
        item.add_marker(pytest.mark.xdist_group(mode or item.path.stem))
        if _is_thorough(item):
            item.add_marker(pytest.mark.thorough)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Refuse a run whose processes would each start every server."""
    grouping = getattr(session.config.option, "loadgroup", False)
    if grouping and not all("@" in item.nodeid for item in session.items):
        raise pytest.UsageError(
            f"pytest-xdist does not group tests under pytest {pytest.__version__}: "
            "install the versions that pyproject.toml names."
        )


def _turn(item: pytest.Item) -> int:
    """Return the position of a test in the run, by its folder."""
    folder = item.path.relative_to(HERE).parts[0]
    return LONGEST_FIRST.index(folder) if folder in LONGEST_FIRST else -1


def _is_thorough(item: pytest.Item) -> bool:
    """Return True if `make test` leaves a test out."""
    path = item.path.relative_to(HERE)
    if any(path.is_relative_to(left_out) for left_out in THOROUGH):
        return True
    quick = {**QUICK.get(path.parts[0], {}), **QUICK.get(str(path), {})}
    callspec = getattr(item, "callspec", None)
    chosen = callspec.params if callspec else {}
    return any(chosen[name] not in quick[name] for name in quick.keys() & chosen)


def pytest_configure(config: pytest.Config) -> None:
    # Background processes of a script ignore Ctrl-C, and so would the commands
    # that tests start and interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def sglang_python() -> Path:
    """An interpreter with SGLang: $AGENTCORE_TEST_PYTHON, or this one."""
    if named := os.environ.get("AGENTCORE_TEST_PYTHON"):
        return Path(named)
    if importlib.util.find_spec("sglang"):
        return Path(sys.executable)
    pytest.fail("no SGLang here, and AGENTCORE_TEST_PYTHON names no interpreter")


@pytest.fixture(scope="session")
def scripted_model(sglang_python: Path) -> Path:
    return ensure_scripted_model(sglang_python)


@pytest.fixture(scope="session")
def sglang_package(sglang_python: Path) -> Path:
    """The installed `sglang` package folder, never to be changed."""
    return find(python=sglang_python).package


@pytest.fixture(scope="session")
def release(sglang_python: Path) -> str:
    return release_of(sglang_python)


@pytest.fixture(scope="session")
def vanilla_tree(sglang_package: Path) -> Callable[[Path], Path]:
    """Copies the package, unpatched: `vanilla_tree(folder)` makes `folder/sglang`."""

    def copy(folder: Path) -> Path:
        package = folder / "sglang"
        without = shutil.ignore_patterns("__pycache__")
        shutil.copytree(sglang_package, package, ignore=without)
        revert(sglang_dir=package)
        return package

    return copy


@pytest.fixture(scope="session")
def vanilla_install(
    sglang_package: Path, vanilla_tree: Callable[[Path], Path]
) -> Callable[[Path], Path]:
    """Copies the package, unpatched, with its metadata."""

    def copy(folder: Path) -> Path:
        package = vanilla_tree(folder)
        for info in sglang_package.parent.glob("sglang-*.dist-info"):
            shutil.copytree(info, package.with_name(info.name))
        return package

    return copy


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the processes of a run share."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session")
def bytecode(sglang_python: Path, sglang_package: Path, run_folder: Path) -> Bytecode:
    """Bytecode of earlier servers; saves 15 s of CPU time at each start."""
    return Bytecode(run_folder / "dependencies", sglang_python, sglang_package)


@pytest.fixture(scope="session")
def trees(
    vanilla_tree: Callable[[Path], Path], bytecode: Bytecode, run_folder: Path
) -> Trees:
    """Copies of SGLang that the processes of a run share; never to be changed."""

    def make(folder: Path) -> None:
        made = Trees(folder / "vanilla", folder / "patched")
        for tree in (made.vanilla, made.patched):
            bytecode.give_to(vanilla_tree(tree))
        apply(sglang_dir=made.patched / "sglang", extras=["all"])
        for tree in (made.vanilla, made.patched):
            with (tree / "sglang/srt/layers/sampler.py").open("a") as sampler:
                sampler.write(THROTTLE + SPOIL)
            with (tree / "sglang/srt/entrypoints/http_server.py").open("a") as server:
                server.write(HELD_REQUESTS)
            run_on_cpu(tree / "sglang")

    folder = once(run_folder / "trees", make)
    return Trees(folder / "vanilla", folder / "patched")


@pytest.fixture(scope="session")
def throttle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("switch") / "throttle"


@pytest.fixture
def slow_engine(throttle: Path) -> Iterator[None]:
    """Makes each engine step take 15 ms."""
    throttle.touch()
    yield
    throttle.unlink()


@pytest.fixture(scope="session")
def fork_server(
    bytecode: Bytecode, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ForkServer]:
    """The process from which most servers are forked."""
    log = tmp_path_factory.mktemp("fork") / "fork_server.log"
    running = ForkServer(bytecode, log)
    yield running
    running.close()


@pytest.fixture(scope="session")
def launch(
    fork_server: ForkServer,
    sglang_python: Path,
    release: str,
    scripted_model: Path,
    bytecode: Bytecode,
    throttle: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Launch:
    def launcher(
        tree: Path,
        *args: str,
        env: Mapping[str, str] | None = None,
        model: Path | None = None,
        mirror_sampler: bool = True,
    ) -> Server:
        return ForkedServer(
            ServerOptions(
                python=sglang_python,
                model=model or scripted_model,
                log=tmp_path_factory.mktemp("server") / "server.log",
                # Two servers share two cores here: an idle one must not spin.
                args=(
                    *("--tool-call-parser", "qwen25", "--sleep-on-idle"),
                    "--enable-custom-logit-processor",
                    *arguments_of(release, args),
                ),
                cpu=True,
                mirror_sampler=mirror_sampler,
                pythonpath=(tree,),
                env={
                    **cpu.TINY_MODEL_ENV,
                    **bytecode.env,
                    THROTTLE_FILE: str(throttle),
                    **(env or {}),
                },
                startup_timeout=240,
            ),
            fork_server,
        )

    return launcher


@pytest.fixture(scope="session", params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    """The name of a mode in `MODES`, each in turn."""
    name: str = request.param
    return name
