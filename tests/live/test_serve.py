"""The command `serve`: a server to try out, which leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from agentcore_verify.server import running
from tests.helpers.bytecode import Bytecode
from tests.helpers.servers import Trees
from tests.helpers.waiting import wait_until

SECONDS = 400
"""Time in which a server must start here, while other tests run."""

Serve = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def temp() -> Iterator[Path]:
    """A short path for temporary files, because SGLang's sockets are below it."""
    with tempfile.TemporaryDirectory(prefix="serve-") as folder:
        yield Path(folder)


@pytest.fixture
def serve(
    sglang_python: Path, bytecode: Bytecode, tmp_path: Path, temp: Path
) -> Iterator[Serve]:
    """Start the command on the CPU, with its own folder for temporary files."""
    started: list[subprocess.Popen[str]] = []

    def start(*args: str | Path) -> subprocess.Popen[str]:
        options = ("--device", "cpu", "--python", sglang_python, "--port", "0")
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "agentcore_patches", "serve"),
                *("--model", "scripted", *options, *args),
            ],
            env={**os.environ, **bytecode.env, "TMPDIR": str(temp)},
            stdout=(tmp_path / "out").open("w"),
            stderr=(tmp_path / "err").open("w"),
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()


# A log record of SGLang, up to the next one.
FREEZE_FAILED = re.compile(r"post-warmup freeze_gc failed\n.*?(?=^\[)", re.M | re.S)


@pytest.mark.parametrize("patched", [True, False])
def test_a_server_answers_the_shown_request_and_ctrl_c_leaves_nothing(
    serve: Serve, trees: Trees, tmp_path: Path, temp: Path, patched: bool
) -> None:
    out, err = tmp_path / "out", tmp_path / "err"
    tree = trees.patched if patched else trees.vanilla
    process = serve("--sglang-dir", tree / "sglang")
    wait_until(
        lambda: "Ctrl-C stops it." in out.read_text() or process.poll() is not None,
        seconds=SECONDS,
    )
    shown = out.read_text()
    command = re.search(r"^curl (?:.*\\\n)+.*$", shown, re.M)
    assert command, shown + err.read_text()
    below = [
        child.pid for child in psutil.Process(process.pid).children(recursive=True)
    ]
    answer = subprocess.run(
        ["bash", "-c", command[0]], capture_output=True, text=True, check=True
    ).stdout

    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 0

    # The trees of the tests are changed after they were patched.
    assert ("Patches changed: core, " in shown) is patched
    assert ("not patched" in shown) is not patched
    assert ('"prompt_token_ids":' in answer) is patched
    log = err.read_text()
    assert "Uvicorn running" in log
    # From 0.5.20 on, SGLang may call its own server before it listens, and logs that.
    assert "Traceback" not in re.sub(FREEZE_FAILED, "", log)
    assert below and running(below) == []
    assert [*temp.iterdir()] == []


def test_a_server_that_fails_to_start_shows_the_reason_and_its_log(
    serve: Serve, trees: Trees, tmp_path: Path, temp: Path
) -> None:
    options = ("--sglang-dir", trees.patched / "sglang", "-q")
    process = serve(*options, "--", "--no-such-option")

    assert process.wait(timeout=SECONDS) == 6

    [log] = temp.iterdir()
    assert (
        (tmp_path / "err")
        .read_text()
        .startswith(
            "error: SGLang rejects its options: unrecognized arguments: --no-such-option. "
            f"Its log is {log}.\nhint: "
        )
    )
    assert (tmp_path / "out").read_text() == ""
