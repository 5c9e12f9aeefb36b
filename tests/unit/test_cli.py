"""The command as a program: help, completion, encodings, closed pipes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from agentcore_patches.command import cli
from agentcore_patches.command.help_topics import TOPICS
from agentcore_patches.shell.exit_codes import DEBUG
from tests.helpers.terminal import shown_on_terminal
from tests.unit.running import COMMAND, Run, program
from tests.unit.small_sglang import build

ROOT = Path(__file__).parents[2]


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
    for command in ("apply", "status", "revert", "list", "verify", "audit"):
        assert f"\n  {command} " in shown


def test_the_help_is_one_screen_and_points_to_the_rest(run: Run) -> None:
    shown = run("--help").out
    assert len(shown.splitlines()) <= 34
    for topic in TOPICS:
        assert f"`agentcore-patch help {topic}`" in shown
        assert run("help", topic).out == f"{TOPICS[topic]}\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_can_evaluate_the_completion_script(run: Run, shell: str) -> None:
    ran = run("completion", shell)
    assert ran.code == 0
    assert f"_AGENTCORE_PATCH_COMPLETE={shell}_complete" in ran.out
    if shell == "bash":
        subprocess.run(["bash", "-nc", ran.out], check=True)


def test_an_interrupt_while_the_command_is_imported_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'click':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder())\n"
    )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    ran = program("status", PYTHONPATH=path)
    assert (ran.returncode, ran.stdout) == (130, "")
    assert ran.stderr == "error: Interrupted.\n"


def test_the_pages_of_the_documentation_can_be_read(run: Run) -> None:
    listed = run("docs").out
    for page in (ROOT / "docs").rglob("*.md"):
        if page.stem != "README":
            assert re.search(rf"^  {page.stem} ", listed, re.M)
            assert run("docs", page.stem).code == 0
    shown = run("docs", "troubleshooting").out
    assert "When something goes wrong" in shown
    assert "](" not in shown and "<!--" not in shown
    assert max(map(len, shown.splitlines())) <= 88


def test_the_pager_shows_colours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LESS", raising=False)
    pager = tmp_path / "pager"
    pager.write_text('#!/bin/sh\necho "LESS is $LESS"\ncat\n', "utf-8")
    pager.chmod(0o755)
    command = [*COMMAND, "docs", "security"]
    shown = shown_on_terminal(command, 80, PAGER=str(pager))
    assert "LESS is -FRX\n" in shown and "\x1b[" in shown
    shown = shown_on_terminal(command, 80, PAGER=str(pager), LESS="-i")
    assert "LESS is -i\n" in shown


HELP = [("help",), *(("help", name) for name in (*cli.commands.commands, *TOPICS))]
SCREENS = [
    ("docs",),
    ("docs", "nosuch"),
    ("docs", "security"),
    ("apply", "--with", "vllm_api"),
    ("revert", "--sglang-dir", "/nowhere"),
    ("list", "--sglang-dir", "PACKAGE"),
    *(
        (name, "-v", "--sglang-dir", "PACKAGE")
        for name in ("apply", "status", "revert")
    ),
]


@pytest.mark.parametrize(
    ("screen", "columns"),
    [
        *((screen, 80) for screen in (*HELP, *SCREENS)),
        *((screen, 40) for screen in SCREENS),
    ],
)
def test_a_screen_is_folded_between_words(
    screen: tuple[str, ...], columns: int, tmp_path: Path
) -> None:
    package = str(build(tmp_path))
    words = [package if word == "PACKAGE" else word for word in screen]
    shown = shown_on_terminal([*COMMAND, *words], columns, PAGER="cat")
    assert "Traceback" not in shown
    # A terminal may be light or dark, so output sets no background.
    assert not re.search(r"\x1b\[[\d;]*\b4\d", shown)
    for line in click.unstyle(shown).splitlines():
        # Words, paths and commands in backticks are not broken, to be copied.
        whole = len(re.sub("`[^`]*`", "", line).split()) <= 1 or package in line
        assert len(line) <= columns or whole, line


def test_help_names_every_environment_variable_that_is_read(run: Run) -> None:
    output = run("help", "environment").out + run("verify", "--help").out
    sources = Path(cli.__file__).parents[2]
    read = {
        name
        for folder in ("agentcore_patches", "verify")
        for file in (sources / folder).rglob("*.py")
        for name in re.findall(r'environ\.get\(\s*"(\w+)"', file.read_text())
    }
    assert {"NO_COLOR", "RAY_ADDRESS", "HF_HUB_OFFLINE", "GITHUB_ACTIONS"} <= read
    for name in {*read, DEBUG}:
        assert name in output


@pytest.mark.parametrize(
    ("color", "coloured"), [("always", True), ("never", False), ("auto", False)]
)
def test_colours_can_be_chosen(run: Run, color: str, coloured: bool) -> None:
    ran = run("apply", "--dry-run", "--diff", "--color", color)
    assert ("\x1b[32m+" in ran.out) is coloured


def test_a_closed_stdout_is_not_an_error(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "w") as closed:
        ran = program("status", "--sglang-dir", str(build(tmp_path)), stdout=closed)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_a_full_disk_behind_stdout_is_reported(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        ran = program("status", "--sglang-dir", str(build(tmp_path)), stdout=full)
    assert ran.returncode == 5
    assert ran.stderr.startswith("error: Cannot write to <stdout>: No space left")
    assert ran.stderr.count("\n") == 2


def test_names_that_cannot_be_encoded_are_shown_escaped(tmp_path: Path) -> None:
    package = str(build(tmp_path / "größe"))

    ran = program("status", "--sglang-dir", package, PYTHONIOENCODING="ascii")

    assert r"gr\xf6\xdfe" in ran.stdout


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("apply --with v", {"vllm-api"}),
        ("status --ch", {"--check"}),
        ("help ex", {"exit-codes"}),
        ("docs trou", {"troubleshooting"}),
        ("verify --dev", {"--device"}),
        ("apply --without vllm-api,al", {"vllm-api,all"}),
        ("verify --check stop,lo", {"stop,logprobs", "stop,logprob-mode"}),
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
