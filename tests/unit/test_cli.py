"""The command as a program: help, completion, encodings, closed pipes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from agentcore_patches.command import cli
from agentcore_patches.command.exit_codes import DEBUG
from tests.unit.running import Run, program
from tests.unit.small_sglang import build


def test_help_shows_verify_without_importing_it() -> None:
    code = (
        "import sys\n"
        "from agentcore_patches.command.cli import main\n"
        "main([])\n"
        "assert not any(name.startswith('agentcore_verify') for name in sys.modules)\n"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    for command in ("apply", "status", "revert", "list", "verify"):
        assert f"\n  {command} " in shown
    assert "\nExit codes:\n" in shown or "\n  Exit codes:\n" in shown


@pytest.mark.parametrize("command", ["apply", "status", "revert"])
def test_help_has_examples_in_80_columns(run: Run, command: str) -> None:
    ran = run(command, "--help")

    assert ran.code == 0
    assert f"Examples:\n    agentcore-patch {command}\n" in ran.out
    assert max(map(len, ran.out.splitlines())) <= 80


@pytest.mark.parametrize("command", ["apply", "verify", None])
def test_help_shows_what_the_option_shows(run: Run, command: str | None) -> None:
    named = [command] if command else []

    ran = run("help", *named)

    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"Usage: {' '.join(['agentcore-patch', *named])} ")
    assert ran.out == run(*named, "--help").out
    assert run("help", "aply").code == 2


def test_help_names_every_environment_variable_that_is_read(run: Run) -> None:
    told = run("--help").out + run("verify", "--help").out
    sources = Path(cli.__file__).parents[2]
    read = {
        name
        for folder in ("agentcore_patches", "verify")
        for file in (sources / folder).rglob("*.py")
        for name in re.findall(r'environ\.get\(\s*"(\w+)"', file.read_text())
    }
    assert {"NO_COLOR", "RAY_ADDRESS", "HF_HUB_OFFLINE", "GITHUB_ACTIONS"} <= read
    for name in {*read, DEBUG}:
        assert name in told


@pytest.mark.parametrize(
    ("color", "coloured"), [("always", True), ("never", False), ("auto", False)]
)
def test_colours_can_be_chosen(run: Run, color: str, coloured: bool) -> None:
    ran = run("apply", "--dry-run", "--diff", "--color", color)
    assert ("\x1b[32m+" in ran.out) is coloured


def test_a_closed_stdout_is_no_error(tmp_path: Path) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    with os.fdopen(theirs, "w") as closed:
        ran = program("status", "--sglang-dir", str(build(tmp_path)), stdout=closed)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_a_full_disk_behind_stdout_is_told(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        ran = program("status", "--sglang-dir", str(build(tmp_path)), stdout=full)
    assert ran.returncode == 5
    assert ran.stderr.startswith("Error: Cannot write to <stdout>: No space left")
    assert ran.stderr.count("\n") == 1


def test_names_that_cannot_be_encoded_are_shown_escaped(tmp_path: Path) -> None:
    package = str(build(tmp_path / "größe"))

    ran = program("status", "--sglang-dir", package, PYTHONIOENCODING="ascii")

    assert r"gr\xf6\xdfe" in ran.stdout


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("ap", {"apply"}),
        ("apply --only t", {"tito", "token-ids"}),
        ("status --ch", {"--check"}),
        ("verify --dev", {"--device"}),
        ("apply --skip tito,to", {"tito,token-ids"}),
        ("verify --check lo", {"logprobs"}),
        ("verify --check stop,lo", {"stop,logprobs"}),
    ],
)
def test_the_shell_completes_commands_options_and_names(
    typed: str, offered: set[str]
) -> None:
    ran = program(
        _AGENTCORE_PATCH_COMPLETE="bash_complete",
        COMP_WORDS=f"agentcore-patch {typed}",
        COMP_CWORD=str(len(typed.split())),
    )
    assert {line.partition(",")[2] for line in ran.stdout.splitlines()} == offered
