"""Launch an SGLang server, wait until it generates, and stop all its processes."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Protocol

import psutil

from agentcore_patches.errors import ServerError

from . import client, cpu
from .client import HttpError, NoAnswer

OnLoading = Callable[[float, str], None]
"""Called while the server starts, with the seconds so far and its log's last line."""

PROBE = Path(__file__).resolve().with_name("probe.py")
HOST = "127.0.0.1"
POLL_INTERVAL = 0.2
"""Seconds between two requests to a starting server."""
STOP_GRACE = 5.0
"""Seconds in which the server may exit by itself before it is killed."""
TAIL_LINES = 20
TAIL_WIDTH = 300
"""Characters of a log line that are shown; SGLang logs all its arguments in one line."""
START_ATTEMPTS = 3
"""Attempts to start if another process takes the port in between."""
PORTS = range(20_000, 32_768)
"""Ports to choose from, below those that Linux gives to outgoing connections."""
GRPC_OFFSET = 10_000
"""From 0.5.15 SGLang also listens for gRPC on its port plus this number."""

NOT_LOCAL = (
    "A model that is no folder is looked up on the Hugging Face Hub. Check its name, or "
    "give --model the folder."
)

_PORT_TAKEN = "address already in use"

_REFUSED = re.compile(r"\S+(?: serve)?: error: (.*?)\.?$")
"""The last line that argparse prints for an unknown option."""

_CAUSE = re.compile(
    r"(?:\[[^\]]+\] ERROR: +)?(\[Errno \d+\] .+)|((?:\w+\.)*\w+(?:Error|Exception): .+)"
)
"""The last line of a traceback, or the server's own about its address."""

_STAMPED = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[^\]]*\] (.+)")
_BAR = re.compile(r"(?P<what>[A-Z][^|:]*): +(?P<done>\d+%)")


@dataclass(frozen=True)
class ServerOptions:
    """Options for launching a server.

    Attributes:
        python: the interpreter that has SGLang.
        model: folder or name.
        log: file for all output of the server.
        args: for `sglang.launch_server`; they override the default ones.
        cpu: run without a GPU or CUDA libraries.
        mirror_sampler: copy every sampled token ID into
            `meta_info["mirrored_token_ids"]`, through `customized_info`.
        env: additional environment variables.
        pythonpath: folders to put first on the server's PYTHONPATH.
        startup_timeout: seconds until the server must generate.
    """

    python: Path
    model: Path | str
    log: Path
    args: tuple[str, ...] = ()
    cpu: bool = False
    mirror_sampler: bool = False
    env: Mapping[str, str] = field(default_factory=dict)
    pythonpath: tuple[Path, ...] = ()
    startup_timeout: float = 600.0


class _Process(Protocol):
    """The part of `subprocess.Popen` that is used."""

    pid: int
    stdin: IO[bytes] | None

    def poll(self) -> int | None: ...


class Server:
    """One SGLang server, from `start` to `stop`; a context manager calls both.

    >>> with Server(options) as server:
    ...     requests.get(f"{server.base_url}/model_info")
    """

    def __init__(self, options: ServerOptions) -> None:
        self.options = options
        self.host = option_value(options.args, "--host") or HOST
        self.port = int(option_value(options.args, "--port") or 0)
        self._process: _Process | None = None
        self._scratch: Path | None = None
        self._known: dict[int, psutil.Process] = {}

    @property
    def base_url(self) -> str:
        """The URL of the server, without a slash at the end."""
        host = HOST if self.host == "0.0.0.0" else self.host
        return f"http://{host}:{self.port}"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def log(self) -> Path:
        return self.options.log

    @property
    def api_key(self) -> str | None:
        return option_value(self.options.args, "--api-key")

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def start(self, on_loading: OnLoading | None = None) -> None:
        """Launch it and wait until it generates; on any error, stop all its processes.

        Raises ServerError, with the last lines of its log, if it dies, does not
        generate within the startup timeout, or its port is taken.
        """
        port_is_ours = not option_value(self.options.args, "--port")
        if not port_is_ours and not port_is_free(self.host, self.port):
            raise ServerError(
                f"Port {self.port} is in use.",
                hint="Choose another --port, or leave it out.",
            )
        for attempt in range(1, START_ATTEMPTS + 1):
            if port_is_ours:
                self.port = free_port(self.host)
            try:
                self._launch()
                self._wait_ready(on_loading)
                return
            except BaseException as error:
                self.stop()
                # From 0.5.18 on a warm-up's traceback comes after it.
                end = "\n".join(self.log_tail(1000)).lower()
                taken = isinstance(error, ServerError) and _PORT_TAKEN in end
                if not (taken and port_is_ours and attempt < START_ATTEMPTS):
                    raise

    def stop(self) -> None:
        if self._process:
            self._find_processes()
            if self._process.stdin:
                with contextlib.suppress(OSError):
                    self._process.stdin.close()  # This tells the probe to end.
            if not self._ends_within(STOP_GRACE):
                self._find_processes()
                for process in self._known.values():
                    with contextlib.suppress(psutil.Error):
                        process.kill()
                self._ends_within(STOP_GRACE)
        self._process = None
        self._known.clear()
        if self._scratch:
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch = None

    def ensure_alive(self) -> None:
        """Raise ServerError, with the last lines of its log, if it is not running."""
        code = self._process.poll() if self._process else None
        if self._process is None or code is not None:
            if code and (refused := _REFUSED.match(" ".join(self.log_tail(1)))):
                raise ServerError(
                    f"SGLang rejects its options: {refused[1]}. Its log is {self.log}.",
                    hint=f"`{self.options.python} -m sglang.launch_server --help` lists "
                    "them.",
                )
            died = f"The server died{_exit_text(code)} with {self.options.model}"
            if not (cause := _cause(self.log_tail())):
                raise self._error(f"{died}.")
            raise ServerError(
                f"{died}: {cause.rstrip('.')}.\nIts log is {self.log}.",
                hint=NOT_LOCAL if "huggingface" in cause.lower() else "",
            )

    def processes(self) -> list[psutil.Process]:
        self._find_processes()
        return [process for process in self._known.values() if _runs(process)]

    def log_tail(self, lines: int = TAIL_LINES) -> list[str]:
        """The last lines of its log without empty ones, as a terminal would show them.

        Long lines are cut. Empty if there is no log.
        """
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, self.log.stat().st_size - 64 * 1024))
                text = file.read().decode(errors="replace")
        except OSError:
            return []
        shown = (line.rstrip().rpartition("\r")[2] for line in text.split("\n"))
        return [
            line if len(line) <= TAIL_WIDTH else f"{line[:TAIL_WIDTH]}..."
            for line in [line for line in shown if line][-lines:]
        ]

    def _launch(self) -> None:
        options = self.options
        self._scratch = Path(tempfile.mkdtemp(prefix="agentcore-"))
        pythonpath: list[str | Path] = [*options.pythonpath]
        env = dict(os.environ)
        if options.cpu:
            env.update(cpu.ENV)
            pythonpath.append(cpu.SITE)
        env.update(options.env)
        if env.get("PYTHONPATH"):
            pythonpath.append(env["PYTHONPATH"])
        env["PYTHONPATH"] = os.pathsep.join(map(str, pythonpath))
        env["TMPDIR"] = env["AGENTCORE_SCRATCH"] = str(self._scratch)
        env.pop("AGENTCORE_MIRROR_SAMPLER", None)
        if options.mirror_sampler:
            env["AGENTCORE_MIRROR_SAMPLER"] = "1"
        command = [
            *(str(options.python), str(PROBE)),
            *("--model-path", str(options.model)),
            *("--host", self.host, "--port", str(self.port)),
            *(cpu.ARGS if options.cpu else ()),
            *options.args,
        ]
        self.log.parent.mkdir(parents=True, exist_ok=True)
        try:
            with self.log.open("wb") as log:
                self._process = self._start_process(command, env, log)
        except OSError as error:
            raise ServerError(f"Cannot run {options.python}: {error}.") from error

    def _start_process(
        self, command: Sequence[str], env: Mapping[str, str], log: IO[bytes]
    ) -> _Process:
        """Start the launcher in its own session; its stdin stays open until we end."""
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=dict(env),
            start_new_session=True,
        )

    def _wait_ready(self, on_loading: OnLoading | None) -> None:
        began = time.monotonic()
        while True:
            self.ensure_alive()
            if self._generates():
                return
            elapsed = time.monotonic() - began
            if elapsed > self.options.startup_timeout:
                raise self._error(
                    f"The server was not ready after {elapsed:.0f} s. If it needs longer, "
                    "raise --startup-timeout."
                )
            if on_loading:
                on_loading(elapsed, _stage(self.log_tail()))
            time.sleep(POLL_INTERVAL)

    def _generates(self) -> bool:
        """True if it generates a token; ServerError if it answers with an error."""
        body = {
            "input_ids": [10, 11, 12],
            "sampling_params": {"max_new_tokens": 1, "temperature": 0},
        }
        refusal: HttpError | None = None
        url = f"{self.base_url}/generate"
        try:
            client.post(url, body, api_key=self.api_key, timeout=5)
        except NoAnswer:
            return False
        except HttpError as error:
            refusal = error
        if not self._listens():
            return False  # Another server took the port first.
        if refusal and 400 <= refusal.status < 500:
            raise self._error(
                f"The server does not generate (HTTP {refusal.status}): {refusal.body}"
            )
        return refusal is None

    def _listens(self) -> bool:
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                for connection in process.net_connections("inet"):
                    if (
                        connection.status == psutil.CONN_LISTEN
                        and connection.laddr.port == self.port
                    ):
                        return True
        return False

    def _find_processes(self) -> None:
        """Add all processes below the launcher or in its session to the known ones."""
        assert self._process is not None
        launcher = self._process.pid
        found: list[psutil.Process] = []
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(launcher)
            found += [process, *process.children(recursive=True)]
        for process in psutil.process_iter():
            with contextlib.suppress(OSError):
                if os.getsid(process.pid) == launcher:
                    found.append(process)
        for process in found:
            self._known.setdefault(process.pid, process)

    def _ends_within(self, seconds: float) -> bool:
        """Wait until all known processes have exited; return False if some have not."""
        assert self._process is not None
        deadline = time.monotonic() + seconds
        while True:
            # A zombie whose threads are still ending keeps the port: it is not reaped.
            running = self._process.poll() is None or any(
                _runs(process) for process in self._known.values()
            )
            if not running or time.monotonic() > deadline:
                return not running
            time.sleep(0.02)

    def _error(self, what: str) -> ServerError:
        tail = "\n".join(self.log_tail())
        return ServerError(f"{what} Its log is {self.log} and ends with:\n{tail}")


def _cause(lines: Sequence[str]) -> str:
    """Return the last error in a log, or an empty string."""
    found = filter(None, map(_CAUSE.match, reversed(lines)))
    return next((one[1] or one[2] for one in found), "")


def _stage(lines: Sequence[str]) -> str:
    """Return SGLang's last message with a time or a progress bar, or an empty string."""
    for line in reversed(lines):
        if found := _STAMPED.match(line):
            if not found[1].startswith("server_args="):
                return found[1]
        elif found := _BAR.match(line):
            return f"{found['what']}, {found['done']}"
    return ""


def option_value(args: Sequence[str], name: str) -> str | None:
    """Return the last value of an option, as argparse reads it."""
    value = None
    for index, arg in enumerate(args):
        if arg == name and index + 1 < len(args):
            value = args[index + 1]
        elif arg.startswith(f"{name}="):
            value = arg.partition("=")[2]
    return value


def free_port(host: str = HOST) -> int:
    """A random port of the host that is free, and so is its gRPC port."""
    for port in random.sample(PORTS, len(PORTS)):
        if port_is_free(host, port) and port_is_free(host, port + GRPC_OFFSET):
            return port
    raise ServerError(f"No port of {host} from {PORTS[0]} to {PORTS[-1]} is free.")


def port_is_free(host: str, port: int) -> bool:
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, port))
        except OSError as error:
            return error.errno != errno.EADDRINUSE
    return True


def _runs(process: psutil.Process) -> bool:
    try:
        if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            return True
    except psutil.NoSuchProcess:
        return False
    with contextlib.suppress(OSError):
        os.waitpid(process.pid, os.WNOHANG)
    return False


def _exit_text(code: int | None) -> str:
    if code is None:
        return ""
    if code < 0:
        with contextlib.suppress(ValueError):
            return f" ({signal.Signals(-code).name})"
    return f" (exit {code})"


def running(pids: Iterable[int]) -> list[int]:
    left = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            if _runs(psutil.Process(pid)):
                left.append(pid)
    return left
