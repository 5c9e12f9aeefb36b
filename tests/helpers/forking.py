"""Servers forked from a process that has imported SGLang's dependencies.

A server takes 10 s of CPU time to start, and the imports of PyTorch and SGLang's other
dependencies take 8 of them. Each server imports SGLang itself again.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from agentcore_verify import cpu
from agentcore_verify.server import Server, ServerOptions
from tests.helpers import fork_server
from tests.helpers.bytecode import Bytecode


class ForkServer:
    """Runs `fork_server.py`, from the first program on until `close`."""

    def __init__(self, bytecode: Bytecode, log: Path) -> None:
        self._lock = threading.Lock()
        self._connection, child_end = socket.socketpair(
            socket.AF_UNIX, socket.SOCK_SEQPACKET
        )
        with child_end, log.open("wb") as output:
            number = str(child_end.fileno())
            self._process = subprocess.Popen(
                [bytecode.python, fork_server.__file__, bytecode.compile(), number],
                env={
                    **os.environ,
                    **cpu.ENV,
                    **cpu.TINY_MODEL_ENV,
                    **bytecode.env,
                    "PYTHONPATH": str(cpu.SITE),
                },
                pass_fds=[child_end.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self._log = log

    def ask(self, request: Any, *descriptors: int) -> Any:
        message = json.dumps(request).encode()
        try:
            with self._lock:
                socket.send_fds(self._connection, [message], descriptors)
                answer = self._connection.recv(1 << 10)
        except ConnectionError:
            answer = b""
        assert answer, f"The fork server ended:\n{self._log.read_text()}"
        return json.loads(answer)

    def close(self) -> None:
        self._connection.close()
        self._process.wait()


class ForkedProcess:
    """A program that a fork server started, in a session of its own."""

    def __init__(
        self,
        fork_server: ForkServer,
        command: Sequence[str],
        env: Mapping[str, str],
        output: IO[bytes],
    ) -> None:
        self._fork_server = fork_server
        self._code: int | None = None
        read_end, write_end = os.pipe()
        self.stdin: IO[bytes] | None = os.fdopen(write_end, "wb")
        try:
            request = {"command": command, "env": dict(env)}
            self.pid: int = fork_server.ask(request, read_end, output.fileno())
        finally:
            os.close(read_end)

    def poll(self) -> int | None:
        if self._code is None:
            self._code = self._fork_server.ask({"exit_code_of": self.pid})
        return self._code


class ForkedServer(Server):
    def __init__(self, options: ServerOptions, fork_server: ForkServer) -> None:
        super().__init__(options)
        self._fork_server = fork_server

    def _start_process(
        self, command: Sequence[str], env: Mapping[str, str], log: IO[bytes]
    ) -> ForkedProcess:
        return ForkedProcess(self._fork_server, command, env, log)
