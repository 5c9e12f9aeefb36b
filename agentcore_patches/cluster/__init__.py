"""`apply` and `status` on every node of a running Ray cluster, by one task per node.

Ray runs in a separate process (`driver`): its log output stays there, it can be killed if
it hangs, and programs that are already connected to a cluster can use this module. The
driver and the nodes answer in JSON, which is checked here: a node is another machine.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from time import monotonic
from typing import Any

from agentcore_patches import api
from agentcore_patches.cluster.driver import Action, one_line, unreachable
from agentcore_patches.cluster.results import NodeResult, RayNode
from agentcore_patches.disk.typed_json import parse, typed
from agentcore_patches.errors import AccessError, UsageError
from agentcore_patches.installs.install import StrPath, refuse_both

TIMEOUT = 120.0
"""Seconds that a node may take to answer, not counting its wait for the lock."""

_LISTEN_SECONDS = 10.0
_CONNECT_SECONDS = 60.0
_EXIT_SECONDS = 5.0
_LARGEST = 64 * 1024 * 1024

_DRIVER = (
    "import sys; sys.path[:] = {path}; "
    "from agentcore_patches.cluster import driver; driver.main({fd})"
)
_DRIVER_ENV = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Under `uv run`, Ray would send this folder and environment to every node.
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
}


def apply_on_ray(
    address: str,
    *,
    sglang_dir: StrPath | None = None,
    python: StrPath | None = None,
    extras: Sequence[str] = (),
    without: Sequence[str] = (),
    dry_run: bool = False,
    lock_timeout: float = 60.0,
    timeout: float = TIMEOUT,
) -> tuple[NodeResult, ...]:
    """Run `apply` on every alive node of a Ray cluster, in parallel.

    A node on which it fails has an `error` in its result; the others are not affected.

    Args:
        address: of the cluster, as `ray.init` takes it: `auto`, `HOST:PORT` or
            `ray://HOST:PORT`.
        sglang_dir, python: as for `apply`, but on each node: absolute paths. With
            neither, the SGLang of the Python that runs the node's Ray workers.
        extras, without, dry_run: as for `apply`.
        lock_timeout: seconds to wait on a node for another command.
        timeout: further seconds that a node may take to answer.

    Raises:
        UsageError: Ray is not installed here, or an argument is invalid.
        AccessError: the cluster cannot be reached.
    """
    options = {
        **_target(sglang_dir, python),
        "extras": api.known_extras(extras),
        "without": api.known_extras(without),
        "dry_run": dry_run,
        "lock_timeout": lock_timeout,
    }
    return _ask(address, "apply", options, timeout + lock_timeout)


def status_on_ray(
    address: str,
    *,
    sglang_dir: StrPath | None = None,
    python: StrPath | None = None,
    timeout: float = TIMEOUT,
) -> tuple[NodeResult, ...]:
    """Run `status` on every alive node of a Ray cluster, in parallel.

    Args and errors: as for `apply_on_ray`; `timeout` is all the time that a node has.
    """
    return _ask(address, "status", _target(sglang_dir, python), timeout)


def _target(sglang_dir: StrPath | None, python: StrPath | None) -> dict[str, Any]:
    refuse_both(sglang_dir, python)
    for option, path in (("--sglang-dir", sglang_dir), ("--python", python)):
        named = os.fspath(path) if path is not None else "/"
        command = option == "--python" and os.sep not in named
        if not (named.startswith(("/", "~")) or command):
            raise UsageError(
                f"With --ray, {option} is a path on each node: give an absolute one, not "
                f"{named}."
            )
    return {
        "sglang_dir": sglang_dir and os.fspath(sglang_dir),
        "python": python and os.fspath(python),
    }


def _ask(
    address: str, action: Action, options: dict[str, Any], timeout: float
) -> tuple[NodeResult, ...]:
    address = _checked(address)
    answered: dict[str, NodeResult] = {}
    with _driver() as (connection, last_line):
        try:
            request = {"address": address, "action": action, "options": options}
            connection.send_bytes(json.dumps({**request, "timeout": timeout}).encode())
            nodes = _nodes(_receive(connection, _CONNECT_SECONDS))
        except TimeoutError:
            raise unreachable(address, f"no answer in {_CONNECT_SECONDS:g} s") from None
        except (EOFError, ConnectionError):
            raise unreachable(address, last_line()) from None
        reason = f"It did not answer within {timeout:g} s."
        deadline = monotonic() + timeout + _EXIT_SECONDS
        try:
            while message := _receive(connection, deadline - monotonic()):
                for node in nodes:
                    if node.node_id == message.get("node_id"):
                        answered[node.node_id] = _result(node, message)
        except (EOFError, ConnectionError):
            reason = f"The connection to the cluster was lost: {last_line()}."
        except TimeoutError:
            pass
    unknown = (
        f"{reason} What it did is unknown: run `agentcore-patch status --ray {address}` "
        "to see."
    )
    return tuple(
        answered.get(node.node_id, NodeResult(node, error=unknown)) for node in nodes
    )


def _checked(address: str) -> str:
    """Return the address of a running cluster, checked by connecting to it.

    Ray itself takes a minute to give up, and would start a cluster for `local`.
    """
    if address == "auto":
        address = os.environ.get("RAY_ADDRESS") or address
    if place := re.fullmatch(r"(?:\w+://)?([^/]+):(\d+)", address):
        host, port = place[1].strip("[]"), int(place[2])
        try:
            socket.create_connection((host, port), _LISTEN_SECONDS).close()
        except (OSError, OverflowError) as error:
            raise unreachable(address, str(error)) from error
    elif address != "auto" and ("://" not in address or address.startswith("local")):
        raise UsageError(
            f"{address!r} is not the address of a running Ray cluster.",
            hint="On one of its nodes, give `auto` or HOST:PORT of its head; from "
            "elsewhere, ray://HOST:PORT.",
        )
    return address


@contextmanager
def _driver() -> Iterator[tuple[Connection, Callable[[], str]]]:
    """Start the driver; yields the connection to it and a function for its last log line."""
    here, there = Pipe()
    # In an empty folder, because Ray's workers also import from the driver's folder.
    with here, there, tempfile.TemporaryDirectory(prefix="agentcore-") as folder:
        log = Path(folder) / "log"
        path = [str(Path(entry).absolute()) for entry in sys.path]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    _DRIVER.format(path=path, fd=there.fileno()),
                ],
                cwd=folder,
                env={**os.environ, **_DRIVER_ENV},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=[there.fileno()],
                # Ctrl-C goes to this process, which then stops the driver.
                start_new_session=True,
            )
        there.close()
        try:
            yield here, lambda: _last_line(log)
        except BaseException:
            process.terminate()
            raise
        finally:
            try:
                process.wait(_EXIT_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _receive(connection: Connection, seconds: float) -> dict[str, Any]:
    """Receive the next message of the driver; empty after the last one."""
    if not connection.poll(max(seconds, 0)):
        raise TimeoutError
    message: dict[str, Any] = json.loads(connection.recv_bytes(_LARGEST))
    return message


def _nodes(message: dict[str, Any]) -> list[RayNode]:
    """Return the nodes that the driver found; raise the error that it sent instead."""
    if problem := message.get("error"):
        kind = UsageError if message["usage"] else AccessError
        raise kind(problem, message["hint"])
    return [typed(RayNode, node) for node in message["nodes"]]


def _result(node: RayNode, message: dict[str, Any]) -> NodeResult:
    if "error" in message:
        return NodeResult(node, error=message["error"])
    try:
        answer = {**parse(message["answer"].encode()), "node": asdict(node)}
        result = typed(NodeResult, answer)
        if not f"{result.error}{result.python}".isprintable():
            raise ValueError("unprintable")
    except (ValueError, AttributeError, TypeError):
        return NodeResult(
            node,
            error="The node's reply is not a valid agentcore-patch result. Run "
            "`agentcore-patch status` on that node.",
        )
    return result


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").split("\n")
    return one_line(next(filter(None, reversed(lines)), "its driver process ended"))
