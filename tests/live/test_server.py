"""Launching and stopping real servers."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentcore_patches.errors import ServerError
from agentcore_verify import client
from agentcore_verify.probe import MIRROR_KEY
from agentcore_verify.scripted_model import SCRIPT
from agentcore_verify.server import (
    HOST,
    Server,
    ServerOptions,
    free_port,
    port_is_free,
    running,
)
from tests.helpers.asking import Case
from tests.helpers.forking import ForkedServer, ForkServer
from tests.helpers.servers import MODES, Launch, Trees, arguments_of
from tests.helpers.waiting import wait_until

# The scripted model answers word for word in each of these.
WAYS: dict[str, tuple[str, ...]] = {
    "default": (),
    "two-workers": (*MODES["two-workers-stream-output"], "--dtype", "bfloat16"),
}


@pytest.fixture(autouse=True)
def temp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temp folder for one test, to see what servers leave in it.

    Not `tmp_path`: SGLang puts sockets in it, and their paths must be short.
    """
    with tempfile.TemporaryDirectory(prefix="live-") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        monkeypatch.setenv("TMPDIR", folder)
        yield Path(folder)


def shared_memory(pid: int | None) -> list[Path]:
    """Return the shared memory of the server launched as `pid`."""
    return list(Path("/dev/shm").glob(f"*_{pid}"))


@contextlib.contextmanager
def nothing_left(server: Server, temp: Path) -> Iterator[None]:
    """Check that after the block no process, file or port of the server is left."""
    yield
    assert server.pid is None
    assert port_is_free(HOST, server.port)
    assert list(temp.glob("agentcore-*")) == []


def generated(server: Server) -> Any:
    sampling = {"temperature": 0, "max_new_tokens": 5}
    prompt = [10, 11, 12]
    body = {"input_ids": prompt, "sampling_params": sampling}
    return client.post_json(f"{server.base_url}/generate", body)


@pytest.mark.parametrize("way", WAYS)
def test_serves_the_script_and_leaves_nothing(
    options: ServerOptions, fork_server: ForkServer, temp: Path, way: str, release: str
) -> None:
    args = options.args + arguments_of(release, WAYS[way])
    options = replace(options, args=args, mirror_sampler=True)
    if way == "default":
        # Other tests fork SGLang's processes; here SGLang spawns them itself.
        server = Server(replace(options, env={**options.env, "AGENTCORE_FORK": ""}))
    else:
        server = ForkedServer(options, fork_server)
    progress: list[tuple[float, str]] = []
    with nothing_left(server, temp):
        try:
            server.start(lambda elapsed, last: progress.append((elapsed, last)))
            launcher, *others = [process.pid for process in server.processes()]
            if way == "two-workers":
                assert shared_memory(launcher)
            for entry in SCRIPT:
                answer = client.ask(server.base_url, **Case(entry.name).body())
                [choice] = answer.completions
                assert choice.content == entry.text
            assert MIRROR_KEY in generated(server)["meta_info"]
        finally:
            server.stop()
        assert len(others) >= 2
        assert running([launcher, *others]) == []
        wait_until(lambda: not shared_memory(launcher))
    assert progress == sorted(progress)
    assert any(last for _, last in progress)


def test_a_port_taken_meanwhile_is_changed_and_a_rejected_prompt_is_the_reason(
    options: ServerOptions, temp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        ports = iter([taken.getsockname()[1]])
        monkeypatch.setattr(
            "agentcore_verify.server.free_port",
            lambda host: next(ports, None) or free_port(),
        )
        server = Server(replace(options, args=("--context-length", "8")))
        with nothing_left(server, temp), pytest.raises(ServerError, match="HTTP 400"):
            server.start()
        assert server.port != taken.getsockname()[1]


LAUNCHER = """
import sys, time
from pathlib import Path
from typing import Any
from agentcore_verify.server import Server, ServerOptions
server = Server(ServerOptions(
    python=Path(sys.argv[1]), model=sys.argv[2], log=Path(sys.argv[3]), cpu=True
))
server.start()
print(server.port, *(process.pid for process in server.processes()), flush=True)
time.sleep(300)
"""


def test_the_server_stops_when_its_launcher_dies(
    options: ServerOptions, temp: Path
) -> None:
    launcher = subprocess.Popen(
        [
            *(sys.executable, "-c", LAUNCHER),
            *(options.python, options.model, options.log),
        ],
        env={**os.environ, **options.env},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert launcher.stdout is not None
    with launcher.stdout:
        port, *pids = map(int, launcher.stdout.readline().split())
    launcher.kill()
    launcher.wait()
    wait_until(lambda: running(pids) == [])
    # Its threads may exit, and close the port, after the process counts as exited.
    wait_until(lambda: port_is_free(HOST, port))
    assert list(temp.glob("agentcore-*")) == []


class SecondNode(Server):
    """The node of a server that answers no requests."""

    def _generates(self) -> bool:
        return True


def test_a_server_of_two_nodes_updates_its_weights(
    trees: Trees, launch: Launch, scripted_model: Path
) -> None:
    args = [
        *("--tp", "2", "--nnodes", "2", "--disable-custom-all-reduce"),
        *("--dist-init-addr", f"{HOST}:{free_port(HOST)}", "--node-rank"),
    ]
    env = {"SGLANG_CPU_OMP_THREADS_BIND": "0|0", "GLOO_SOCKET_IFNAME": "lo"}
    first, second = (launch(trees.patched, *args, rank, env=env) for rank in "01")
    with SecondNode(second.options), first as server:
        weights = {"model_path": str(scripted_model), "weight_version": "2"}
        for _ in range(2):
            url = f"{server.base_url}/update_weights_from_disk"
            assert client.post(url, weights, timeout=60).json()["success"]
