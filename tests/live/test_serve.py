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

from agentcore_verify import client
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
            env={
                **os.environ,
                **bytecode.env,
                "TMPDIR": str(temp),
                "HF_HUB_OFFLINE": "1",
            },
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
def test_a_server_shows_one_line_when_it_answers_and_ctrl_c_leaves_nothing(
    serve: Serve, trees: Trees, tmp_path: Path, temp: Path, patched: bool
) -> None:
    out, err = tmp_path / "out", tmp_path / "err"
    tree = trees.patched if patched else trees.vanilla
    process = serve("--sglang-dir", tree / "sglang", *(["-v"] if patched else []))
    wait_until(
        lambda: " is ready at " in out.read_text() or process.poll() is not None,
        seconds=SECONDS,
    )
    shown = out.read_text()
    ready = re.match(
        rf"SGLang \S+ is ready at (\S+) \(`kill {process.pid}` stops it\)\nwarning: (.*)\n$",
        shown,
    )
    assert ready, shown + err.read_text()
    below = [
        child.pid for child in psutil.Process(process.pid).children(recursive=True)
    ]
    answer = client.ask(ready[1], messages=[{"role": "user", "content": "Say hello."}])

    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 0

    # The trees of the tests are changed after they were patched.
    assert ready[2].startswith(
        "The patches are changed: " if patched else "This SGLang is not patched: "
    )
    assert (answer.prompt_token_ids is not None) is patched
    log = err.read_text()
    assert ("Uvicorn running" in log) is patched  # which is the one with -v
    if not patched:
        assert re.fullmatch(
            rf"agentcore-patch: starting SGLang; its log is {temp}/\S+\n"
            "agentcore-patch: the server was stopped\n",
            log,
        )
    # From 0.5.20 on, SGLang may call its own server before it listens, and logs that.
    assert "Traceback" not in re.sub(FREEZE_FAILED, "", log)
    assert below and running(below) == []
    assert [*temp.iterdir()] == []


@pytest.mark.parametrize(
    ("args", "says", "hint"),
    [
        (
            ("--model", "nosuch/model"),
            r"The server died \(exit \d\) with nosuch/model: OSError: .*",
            r"hint: A model that is no folder is looked up on the Hugging Face Hub\. .*",
        ),
        (
            ("--host", "192.0.2.1"),
            r"The server died \(exit \d\) with /.*: "
            r"\[Errno 99\] .* cannot assign requested address",
            "",
        ),
        (
            ("--", "--no-such-option"),
            "SGLang rejects its options: unrecognized arguments: --no-such-option",
            "hint: `.*sglang.launch_server --help`.*",
        ),
    ],
)
def test_a_server_that_fails_to_start_shows_the_cause_once_and_its_log(
    serve: Serve,
    trees: Trees,
    tmp_path: Path,
    temp: Path,
    args: tuple[str, ...],
    says: str,
    hint: str,
) -> None:
    process = serve("--sglang-dir", trees.patched / "sglang", "-q", *args)

    assert process.wait(timeout=SECONDS) == 6

    [log] = temp.glob("*.log")
    *error, last = (tmp_path / "err").read_text().splitlines()
    if hint:
        assert re.fullmatch(hint, last)
    else:
        error.append(last)
    assert re.fullmatch(rf"error: {says}\.\sIts log is {log}\.", "\n".join(error))
    assert (tmp_path / "out").read_text() == ""
