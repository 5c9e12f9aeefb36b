"""Imports modules once, then forks a process for each Python program on request.

Run by file path in the interpreter of the programs; it uses only the standard library:

    PYTHON fork_server.py MODULES SOCKET

MODULES is a file with a name a line, SOCKET the number of a file descriptor. A request
to start a program comes with the file descriptors of its input and its output:

    {"command": [PYTHON, FILE, ARGUMENT...], "env": {...}}  ->  process ID
    {"exit_code_of": process ID}                            ->  null while it runs

It exits when the other end of the socket is closed.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any


def main(modules: str, descriptor: str) -> None:
    """Serve; in a forked process, run its program instead."""
    folders = os.environ["PYTHONPATH"].split(os.pathsep)
    own_path = [entry for entry in sys.path[1:] if entry not in folders]
    sys.path[:] = [*folders, *own_path]
    gc.disable()
    for name in Path(modules).read_text().split():
        importlib.import_module(name)
    assert "sglang" not in sys.modules, "programs have an SGLang of their own"
    gc.freeze()
    gc.enable()

    connection = socket.socket(fileno=int(descriptor))
    while True:
        message, descriptors, *_ = socket.recv_fds(connection, 1 << 20, 2)
        if not message:
            return
        request = json.loads(message)
        answer: int | None
        if "command" not in request:
            answer = _exit_code(request["exit_code_of"])
        elif answer := os.fork():
            for each in descriptors:
                os.close(each)
        else:
            connection.close()
            _become(request, descriptors, own_path)
            return
        connection.send(json.dumps(answer).encode())


def _exit_code(pid: int) -> int | None:
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def _become(request: Any, descriptors: list[int], own_path: list[str]) -> None:
    """Run a program in this process, as if it had been started."""
    os.setsid()
    stdin, output = descriptors
    for source, target in ((stdin, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    for each in descriptors:
        os.close(each)
    os.environ.clear()
    os.environ.update(request["env"])
    tempfile.tempdir = None  # The cached folder is that of another TMPDIR.
    sys.path[:] = [*request["env"]["PYTHONPATH"].split(os.pathsep), *own_path]
    sys.argv[:] = request["command"][1:]
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:])
