"""The real command on copies of the v0.5.9 package, each run a separate process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentcore_patches import __version__, api
from agentcore_patches.edits import Edit
from agentcore_patches.patches import registry
from agentcore_patches.patches.paths import COMMUNICATOR_MIXIN, LANDED
from agentcore_patches.results import PatchState
from tests.helpers.planning import VERSION
from tests.helpers.terminal import shown_on_terminal
from tests.helpers.trees import Photograph, photograph
from tests.sglang_sources.releases import changed_files

COMMAND = [sys.executable, "-m", "agentcore_patches"]
OURS = ".agentcore-patch"

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def picture(package: Path) -> Photograph:
    """Return a photograph without bytecode and the lock."""
    ignored = ("__pycache__", f"{OURS}/lock")
    found = photograph(package).items()
    return {path: seen for path, seen in found if not any(i in path for i in ignored)}


@pytest.fixture
def package(vanilla_install: Callable[[Path], Path], tmp_path: Path) -> Path:
    """The package folder of a fresh copy."""
    return vanilla_install(tmp_path / "site")


@pytest.fixture
def run(package: Path) -> Run:
    """Run the command on the copy: `run("apply", "--json")`."""

    def run(*args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND, *args, "--sglang-dir", str(package)],
            env={**os.environ, "PYTHONPATH": str(package.parent)},
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def document(ran: subprocess.CompletedProcess[str]) -> Any:
    """Return the JSON document of a command that succeeded."""
    assert (ran.returncode, ran.stderr) == (0, "")
    return json.loads(ran.stdout)


def test_apply_status_and_revert(run: Run, package: Path) -> None:
    before = picture(package)
    assert run("status", "--check").returncode == 1

    applied = document(run("apply", "--with", "all", "--json"))

    assert applied["changed"] and applied["patches"] == list(registry.names())
    touched = [file["path"] for file in applied["files"]]
    assert touched == list(registry.files(registry.names(), VERSION))
    assert {file["action"] for file in applied["files"]} == {"patched"}
    pristine = {path: None if path in LANDED else True for path in touched}
    assert {file["path"]: file["pristine"] for file in applied["files"]} == pristine
    assert {edit["outcome"] for edit in applied["edits"]} == {"applied"}
    after = picture(package)
    kept = [path for path in touched if path in before]
    changed = {path for path in after if after[path] != before.get(path)}
    own = (OURS, "srt/agentcore")
    assert {path for path in changed if not path.startswith(own)} == {*kept}
    assert all(after[path][:4] == before[path][:4] for path in kept)

    again = document(run("apply", "--json"))
    assert again["changed"] is False and again["files"] == again["edits"] == []
    assert picture(package) == after

    told = document(run("status", "--check", "--json"))
    assert told["complete"] and told["state"] == "in place"
    assert told["patches"] == list(registry.names())
    assert told["applied_by"].startswith(__version__)
    states = {file["path"]: file["state"] for file in told["files"]}
    assert states == dict.fromkeys(touched, "patched")

    reverted = document(run("revert", "--json"))
    assert reverted["changed"] and reverted["patches"] == list(registry.names())
    assert {file["path"]: file["pristine"] for file in reverted["files"]} == pristine
    assert picture(package) == before
    assert not (package / OURS).exists()
    assert document(run("revert", "--json"))["changed"] is False
    assert run("status", "--check").returncode == 1


def test_patches_of_a_version_that_changed_one_more_file_are_reverted(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = picture(package)
    api.apply(sglang_dir=package)
    edits, order = registry.edits, registry.WRITING_ORDER

    def without_a_file(name: str, version: str) -> tuple[Edit, ...]:
        own = edits(name, version)
        return tuple(edit for edit in own if edit.file != COMMUNICATOR_MIXIN)

    # A later version, whose patches no longer change a file.
    kept = tuple(path for path in order if path != COMMUNICATOR_MIXIN)
    monkeypatch.setattr(registry, "WRITING_ORDER", kept)
    monkeypatch.setattr(registry, "edits", without_a_file)
    monkeypatch.setattr(registry, "fingerprint", lambda: "b" * 64)
    status = api.status(sglang_dir=package)
    assert status.state is PatchState.OUTDATED
    for found in (status, api.revert(sglang_dir=package)):
        assert COMMUNICATOR_MIXIN in [file.path for file in found.files]
    assert picture(package) == before


def test_applying_the_printed_diff_yields_the_same_files(
    run: Run, package: Path, tmp_path: Path
) -> None:
    diff = run("apply", "--with", "all", "--dry-run", "--diff").stdout
    for path in LANDED:
        assert f"--- /dev/null\n+++ b/sglang/{path}\n@@" in diff
    files = registry.files(registry.names(), VERSION)
    for path in changed_files(VERSION):
        (tmp_path / "sglang" / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(package / path, tmp_path / "sglang" / path)

    subprocess.run(["git", "apply"], input=diff, text=True, cwd=tmp_path, check=True)

    run("apply", "--with", "all")
    for path in files:
        patched = (package / path).read_bytes()
        assert (tmp_path / "sglang" / path).read_bytes() == patched


# Quick, and fit for a terminal


@pytest.mark.parametrize(
    ("patched", "command"),
    [
        (True, "apply"),
        (True, "status"),
        (True, "status --check --json"),
        (False, "status"),
    ],
)
def test_commands_with_nothing_to_do_import_no_heavy_modules(
    run: Run, package: Path, patched: bool, command: str
) -> None:
    if patched:
        run("apply")
    code = (
        "import sys; from agentcore_patches.command.cli import main; "
        "assert main(sys.argv[1:]) == 0; print('LOADED', *sys.modules)"
    )
    args = [*command.split(), "--sglang-dir", str(package)]
    told = subprocess.check_output([sys.executable, "-c", code, *args], text=True)
    loaded = told.partition("LOADED")[2].split()
    assert "agentcore_patches.state.transaction" in loaded
    heavy = "libcst rich requests packaging importlib.metadata logging difflib"
    assert not {*loaded} & {*heavy.split()}


def test_the_guard_imports_little(run: Run, package: Path) -> None:
    """SGLang waits for it at each start; a trainer's program has the time as well."""
    run("apply")
    # SGLang has imported the modules of the second line.
    code = """
import sys
import dataclasses, hashlib, importlib.metadata, json, logging, multiprocessing
before = set(sys.modules)
logging.basicConfig(level=logging.INFO)
from agentcore_patches import plugin
plugin.register()
print(*{*sys.modules} - before)
"""
    env = {**os.environ, "PYTHONPATH": str(package.parent)}
    command = [sys.executable, "-c", code]
    ran = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert ran.stderr.endswith(f"agentcore-patch {__version__}: core is in place.\n")
    loaded = ran.stdout.split()
    ours = [name for name in loaded if name.startswith("agentcore_patches.")]
    rooms = {name.split(".")[1] for name in ours}
    assert "state" in rooms
    assert not rooms & {"api", "cluster", "command", "edits", "planning"}
    others = {name.partition(".")[0] for name in loaded} - {"agentcore_patches"}
    assert others <= sys.stdlib_module_names


@pytest.mark.parametrize("no_color", ["", "1"])
def test_a_diff_on_a_terminal_is_coloured_unless_no_color_is_set(
    package: Path, no_color: str
) -> None:
    command = [*COMMAND, "apply", "--dry-run", "--diff", "--sglang-dir", str(package)]
    shown = shown_on_terminal(command, columns=100, TERM="xterm", NO_COLOR=no_color)
    assert ("\x1b[32m+" in shown) == ("\x1b" in shown) == (not no_color)
