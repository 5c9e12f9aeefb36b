"""`verify` when the server fails or a signal arrives: exit codes, nothing left.

A stub replaces SGLang, so that it fails on request and at once.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from agentcore_verify.server import running
from tests.helpers.servers import Trees
from tests.helpers.waiting import wait_until

STUB = Path(__file__).with_name("stub_server.py")


class Stubbed:
    """Runs the command with the stub in place of SGLang."""

    def __init__(self, folder: Path, tree: Path) -> None:
        self.folder = folder
        self.reports = {kind: folder / f"report.{kind}" for kind in ("json", "junit")}
        self.temp = Path(tempfile.mkdtemp(prefix="stub-"))
        self._tree = tree
        self._pids = folder / "pids"
        self._python = folder / "python"
        self._python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{STUB}" "$@"\n')
        self._python.chmod(0o755)

    def start(self, how: str, *args: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "agentcore_patches", "verify"),
                *("--model", self.folder, "--device", "cuda"),
                *("--python", self._python, "--sglang-dir", self._tree / "sglang"),
                *("--json-file", self.reports["json"]),
                *("--junit", self.reports["junit"]),
                *args,
            ],
            env={
                **{**os.environ, "TMPDIR": str(self.temp)},
                **{"STUB": how, "STUB_PIDS": str(self._pids)},
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, how: str, *args: str) -> tuple[int, str, str]:
        """Run the command; return exit code, standard output and standard error."""
        process = self.start(how, *args)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    def logs(self) -> list[Path]:
        return list(self.temp.glob("agentcore-verify-*.log"))

    def log_says(self, text: str) -> bool:
        return any(text in log.read_text() for log in self.logs())

    def report(self) -> Any:
        return json.loads(self.reports["json"].read_text())

    def assert_nothing_left(self) -> None:
        pids = [int(pid) for pid in self._pids.read_text().split()]
        assert len(pids) >= 2
        assert running(pids) == []
        assert list(self.temp.glob("agentcore-?*")) == self.logs()


@pytest.fixture
def stubbed(tmp_path: Path, trees: Trees) -> Iterator[Stubbed]:
    made = Stubbed(tmp_path, trees.patched)
    yield made
    for log in made.logs():
        log.unlink()
    made.temp.rmdir()


def test_a_crash_at_start_shows_the_end_of_the_log(stubbed: Stubbed) -> None:
    code, out, err = stubbed.run("dies")
    assert code == 6
    [log] = stubbed.logs()
    assert str(log) in err and str(log) in out
    assert "the stub has no model" in err
    stubbed.assert_nothing_left()
    assert stubbed.report()["exit_code"] == 6
    assert "the stub has no model" in stubbed.report()["error"]["message"]
    [error] = ElementTree.parse(stubbed.reports["junit"]).iter("error")
    assert error.text is not None and "the stub has no model" in error.text


def test_a_server_that_never_gets_ready_is_stopped(stubbed: Stubbed) -> None:
    args = ("--startup-timeout", "1.5", "--", "--api-key", "sesame", "--tp=2")
    code, out, err = stubbed.run("never-ready", *args)
    assert code == 6
    assert "--api-key *** --tp=2" in out
    assert "sesame" not in out + err + stubbed.reports["json"].read_text()
    assert "was not ready after" in err
    assert "the stub begins" in err
    stubbed.assert_nothing_left()


def test_a_server_that_answers_5xx_is_asked_again(stubbed: Stubbed) -> None:
    log = stubbed.folder / "server.log"
    code, _, err = stubbed.run("busy", "--check", "tito", "--log", str(log))
    assert log.read_text().count("the stub is busy") > 2
    assert code == 1 and "SGLang is ready" in err
    stubbed.assert_nothing_left()


def test_a_crash_during_a_check_is_reported_with_that_check(
    stubbed: Stubbed,
) -> None:
    checks = ("--check", "non-streaming", "--check", "streaming")
    code, out, err = stubbed.run("crashes", *checks)
    assert code == 6
    assert "During non-streaming: The server died (exit 3)" in err
    assert "the stub crashes" in err
    stubbed.assert_nothing_left()
    outcomes = [check["outcome"] for check in stubbed.report()["checks"]]
    assert outcomes == ["failed", "skipped"]
    assert "FAILED: 1 failed, 1 skipped" in out


def test_a_server_that_ignores_sigterm_is_killed(stubbed: Stubbed) -> None:
    log = stubbed.folder / "server.log"
    code, out, _ = stubbed.run("clings", "--check", "tito", "--log", str(log))
    assert code == 1
    assert "Not a chat completion" in out
    assert f"Server log: {log}" in out
    assert "the stub begins" in log.read_text()
    assert stubbed.logs() == []
    stubbed.assert_nothing_left()


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
)
@pytest.mark.parametrize(
    ("how", "moment", "check"),
    [
        pytest.param("never-ready", "begins", "concurrency", id="while it starts"),
        pytest.param("silent", "falls silent", "concurrency", id="during a check"),
        pytest.param(
            "silent-streaming", "falls silent", "concurrency", id="streams open"
        ),
        pytest.param("silent-streaming", "falls silent", "pauses", id="before a pause"),
    ],
)
def test_a_signal_stops_the_command_and_its_server(
    stubbed: Stubbed,
    number: signal.Signals,
    code: int,
    how: str,
    moment: str,
    check: str,
) -> None:
    process = stubbed.start(how, "--check", check)
    wait_until(lambda: stubbed.log_says(f"the stub {moment}"))
    process.send_signal(number)
    _, err = process.communicate(timeout=20)
    assert process.returncode == code
    stubbed.assert_nothing_left()
    if number == signal.SIGTERM:
        assert stubbed.logs() == []
        return
    [log] = stubbed.logs()
    starting = how == "never-ready"
    where = (
        "while SGLang was starting"
        if starting
        else f"during the check {check} (1 of 1)"
    )
    assert err.splitlines()[-1] == (
        f"error: Interrupted {where}. The server was stopped. Its log is {log}."
    )


def test_a_closed_stdout_is_not_an_error(stubbed: Stubbed) -> None:
    process = stubbed.start("babbles", "--check", "stop")
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    said = process.stderr.read()
    assert process.wait(timeout=30) == 1
    assert "This is a bug" not in said and "Broken pipe" not in said
