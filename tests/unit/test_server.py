"""Launching a server, tested without a server."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from agentcore_patches.errors import ServerError
from agentcore_verify import server as server_module
from agentcore_verify.server import (
    GRPC_OFFSET,
    PORTS,
    Server,
    ServerOptions,
    _stage,
    free_port,
    running,
)


def server(tmp_path: Path, *args: str) -> Server:
    python = Path(sys.executable)
    return Server(
        ServerOptions(python=python, model="m", log=tmp_path / "log", args=args)
    )


@pytest.mark.parametrize(
    ("args", "url"),
    [
        (("--port=7",), "http://127.0.0.1:7"),
        (("--port", "6", "--tp", "2", "--port", "7"), "http://127.0.0.1:7"),
        (("--host", "0.0.0.0", "--port", "7"), "http://127.0.0.1:7"),
        (("--host=10.0.0.1", "--port", "7"), "http://10.0.0.1:7"),
    ],
)
def test_the_url_follows_from_the_arguments(
    tmp_path: Path, args: tuple[str, ...], url: str
) -> None:
    assert server(tmp_path, *args).base_url == url
    assert server(tmp_path, *args).api_key is None
    assert server(tmp_path, *args, "--api-key", "k").api_key == "k"


def test_a_free_port_has_a_free_grpc_port(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        grpc = taken.getsockname()[1]
        asked = [grpc - GRPC_OFFSET, *PORTS]
        monkeypatch.setattr("random.sample", lambda population, k: asked)
        port = free_port()
    assert port in PORTS and port != grpc - GRPC_OFFSET
    assert port + GRPC_OFFSET < 65_536


def test_ports_that_are_not_free_are_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len({free_port() for _ in range(20)}) > 10
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ServerError, match=f"Port {port} is in use"):
            server(tmp_path, "--port", str(port)).start()
        monkeypatch.setattr(server_module, "PORTS", range(port, port + 1))
        with pytest.raises(ServerError, match=f"No port .* {port} to {port} is free"):
            free_port()


def test_the_log_tail_is_what_a_terminal_would_show(tmp_path: Path) -> None:
    assert server(tmp_path).log_tail() == []
    (tmp_path / "log").write_bytes(b"one\n\ntwo\r\nload 1%\rload 2%\n\xff\n  \n")
    assert server(tmp_path).log_tail() == ["one", "two", "load 2%", "\ufffd"]
    assert server(tmp_path).log_tail(1) == ["\ufffd"]


def test_a_server_that_was_not_started_is_not_alive_and_can_be_stopped(
    tmp_path: Path,
) -> None:
    idle = server(tmp_path)
    idle.stop()
    with pytest.raises(ServerError):
        idle.ensure_alive()


def test_a_zombie_process_is_not_running() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    while psutil.Process(child.pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    assert running([child.pid]) == []
    child.wait()


@pytest.mark.parametrize(
    ("lines", "stage"),
    [
        ("/x/y.py:3: FutureWarning: old\n  warnings.warn(", ""),
        ("[2026-11-26 10:00:00] server_args=ServerArgs(model='m')", ""),
        ("[2026-11-26 10:00:00 TP0] Load weight.\n  warnings.warn(", "Load weight."),
        ("[2026-11-26 10:00:00] Load\nLoading x:  50% Done | 1/2", "Loading x, 50%"),
    ],
)
def test_progress_shows_sglangs_steps_and_no_stray_lines(
    lines: str, stage: str
) -> None:
    assert _stage(lines.splitlines()) == stage
