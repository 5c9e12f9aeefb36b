"""`apply` and `status` on every node of a running Ray cluster, by one task a node.

Ray itself runs in a process of its own. Its logging stays there, it can be ended when it
hangs or aborts, and a program that is connected to a cluster already may call this too.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from time import monotonic
from typing import Any, Literal, TypeAlias

import click

from agentcore_patches import api
from agentcore_patches.api import StrPath
from agentcore_patches.errors import AccessError, AgentcoreError, UsageError
from agentcore_patches.install import refuse_both
from agentcore_patches.results import ApplyResult, StatusResult

TIMEOUT = 120.0
"""Seconds within which a node has to answer, not counting its wait for a lock."""

_LISTEN_SECONDS = 10.0
_CONNECT_SECONDS = 60.0
_LEAVE_SECONDS = 5.0

_Action: TypeAlias = Literal["apply", "status"]
_Answer: TypeAlias = tuple[
    StatusResult | None, ApplyResult | None, StatusResult | None, str | None
]

_DRIVER = "import sys; sys.path[:] = {path}; from agentcore_patches import cluster; cluster.drive({fd})"
_DRIVER_ENV = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Under `uv run`, Ray would send this folder and environment to every node.
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
}


@dataclass(frozen=True)
class Node:
    """A node of a Ray cluster, as Ray names it."""

    node_id: str
    address: str
    hostname: str


@dataclass(frozen=True)
class NodeResult:
    """What was found and done on one node.

    Attributes:
        node: the node it is about.
        before: what was in place before `apply`; None for `status`.
        applied: what `apply` did; None if it failed, and for `status`.
        status: what is in place now; None if the node could not tell.
        error: why the node failed, in one line; None if it did not.
    """

    node: Node
    before: StatusResult | None = None
    applied: ApplyResult | None = None
    status: StatusResult | None = None
    error: str | None = None

    @property
    def complete(self) -> bool:
        """Whether every patch asked about is in place there, whole and up to date."""
        return self.error is None and self.status is not None and self.status.complete

    @property
    def changed(self) -> bool:
        """Whether any file was changed there; in a dry run, would be."""
        return self.applied is not None and self.applied.changed


def apply_on_ray(
    address: str,
    *,
    sglang_dir: StrPath | None = None,
    python: StrPath | None = None,
    only: Sequence[str] = (),
    dry_run: bool = False,
    lock_timeout: float = 60.0,
    timeout: float = TIMEOUT,
) -> tuple[NodeResult, ...]:
    """Do what `apply` does on every alive node of a Ray cluster, all at once.

    A node that cannot do it has an `error` in its result; the others do it all the same.

    Args:
        address: of the cluster, as `ray.init` takes it: `auto`, `HOST:PORT` or
            `ray://HOST:PORT`.
        sglang_dir, python: as for `apply`, but on each node, so paths are absolute. With
            neither it is the SGLang of the Python that runs the node's Ray workers.
        only, dry_run: as for `apply`.
        lock_timeout: seconds to wait on a node for another command.
        timeout: seconds more within which a node has to answer.

    Raises:
        UsageError: Ray is not installed here, or the arguments make no sense.
        AccessError: the cluster cannot be reached.
    """
    options = {
        **_target(sglang_dir, python, only),
        "dry_run": dry_run,
        "lock_timeout": lock_timeout,
    }
    return _ask(address, "apply", options, timeout + lock_timeout)


def status_on_ray(
    address: str,
    *,
    sglang_dir: StrPath | None = None,
    python: StrPath | None = None,
    only: Sequence[str] = (),
    timeout: float = TIMEOUT,
) -> tuple[NodeResult, ...]:
    """Do what `status` does on every alive node of a Ray cluster, all at once.

    Args, errors: as for `apply_on_ray`; `timeout` is all the time a node has.
    """
    return _ask(address, "status", _target(sglang_dir, python, only), timeout)


def work(action: _Action, options: dict[str, Any]) -> _Answer:
    """What the task on a node does; what it raises on purpose is part of the answer."""
    asked = {name: options[name] for name in ("sglang_dir", "python", "only")}
    before = applied = after = error = None
    try:
        if action == "apply":
            before = api.status(**asked)
            try:
                applied = api.apply(**options)
            except AgentcoreError as failure:
                error = str(failure)
        after = api.status(**asked)
    except AgentcoreError as failure:
        error = error or str(failure)
    if applied and after and not applied.dry_run and not after.complete:
        error = "Somebody changed the sources again as soon as they were patched."
    return before, applied, after, error and " ".join(error.split())


def drive(fd: int) -> None:
    """The process that is a Ray driver: it is asked and answers on a connection.

    It sends the nodes, then a result for each one that answers in time, then None; or
    nothing but the error that kept it from the cluster.
    """
    with Connection(fd) as connection:
        address, action, options, timeout = connection.recv()
        try:
            nodes = _connect(address)
        except AgentcoreError as error:
            connection.send(error)
            return
        connection.send(nodes)
        for result in _results(nodes, action, options, timeout):
            connection.send(result)
        connection.send(None)
        import ray

        ray.shutdown()


def _target(
    sglang_dir: StrPath | None, python: StrPath | None, only: Sequence[str]
) -> dict[str, Any]:
    refuse_both(sglang_dir, python)
    for option, path in (("--sglang-dir", sglang_dir), ("--python", python)):
        named = os.fspath(path) if path is not None else "/"
        command = option == "--python" and os.sep not in named
        if not (named.startswith(("/", "~")) or command):
            raise UsageError(
                f"With --ray, {option} names a place on each node: give an absolute "
                f"path, not {named}."
            )
    return {
        "sglang_dir": sglang_dir and os.fspath(sglang_dir),
        "python": python and os.fspath(python),
        "only": api.select(only) if only else (),
    }


def _ask(
    address: str, action: _Action, options: dict[str, Any], timeout: float
) -> tuple[NodeResult, ...]:
    address = _checked(address)
    answered: dict[str, NodeResult] = {}
    with _driver() as (connection, last_words):
        try:
            connection.send((address, action, options, timeout))
            nodes = _receive(connection, _CONNECT_SECONDS)
        except TimeoutError:
            raise _unreachable(
                address, f"no answer in {_CONNECT_SECONDS:g} s"
            ) from None
        except (EOFError, ConnectionError):
            raise _unreachable(address, last_words()) from None
        if isinstance(nodes, AgentcoreError):
            raise nodes
        silence = f"It did not answer within {timeout:g} s."
        deadline = monotonic() + timeout + _LEAVE_SECONDS
        try:
            while result := _receive(connection, deadline - monotonic()):
                answered[result.node.node_id] = result
        except (EOFError, ConnectionError):
            silence = f"The connection to the cluster was lost: {last_words()}."
        except TimeoutError:
            pass
    unknown = (
        f"{silence} What it did is unknown; ask again with `agentcore-patch status`."
    )
    return tuple(
        answered.get(node.node_id, NodeResult(node, error=unknown)) for node in nodes
    )


def _checked(address: str) -> str:
    """The address of a running cluster, at which something listens.

    Ray itself takes a minute to give up, and `local` would start a cluster.
    """
    if address == "auto":
        address = os.environ.get("RAY_ADDRESS") or address
    if place := re.fullmatch(r"(?:\w+://)?([^/]+):(\d+)", address):
        host, port = place[1].strip("[]"), int(place[2])
        try:
            socket.create_connection((host, port), _LISTEN_SECONDS).close()
        except (OSError, OverflowError) as error:
            raise _unreachable(address, str(error)) from error
    elif address != "auto" and ("://" not in address or address.startswith("local")):
        raise UsageError(
            f"{address!r} is no address of a running Ray cluster: give `auto` on one of "
            "its nodes, HOST:PORT of its head on one of its nodes, or ray://HOST:PORT."
        )
    return address


@contextmanager
def _driver() -> Iterator[tuple[Connection, Callable[[], str]]]:
    """A process that runs `drive`: the connection to it, and what it printed last."""
    ours, theirs = Pipe()
    # From an empty folder: Ray has its workers import from where its driver is.
    with ours, theirs, tempfile.TemporaryDirectory(prefix="agentcore-") as folder:
        log = Path(folder) / "log"
        path = [str(Path(entry).absolute()) for entry in sys.path]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    _DRIVER.format(path=path, fd=theirs.fileno()),
                ],
                cwd=folder,
                env={**os.environ, **_DRIVER_ENV},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=[theirs.fileno()],
                # Ctrl-C is for us, who then end it.
                start_new_session=True,
            )
        theirs.close()
        try:
            yield ours, lambda: _last_line(log)
        except BaseException:
            process.terminate()
            raise
        finally:
            try:
                process.wait(_LEAVE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _receive(connection: Connection, seconds: float) -> Any:
    if not connection.poll(max(seconds, 0)):
        raise TimeoutError
    return connection.recv()


def _unreachable(address: str, reason: str) -> AccessError:
    return AccessError(
        f"Cannot connect to a Ray cluster at {address}: {reason.rstrip('.')}. `auto` and "
        "HOST:PORT (of the head, 6379 unless chosen otherwise) work on a node of the "
        "cluster; from elsewhere it is ray://HOST:10001. Nothing was changed."
    )


def _connect(address: str) -> list[Node]:
    """Make this process a driver of the cluster; its alive nodes, by address."""
    try:
        import ray
    except ImportError as error:
        raise UsageError(
            f"--ray needs Ray, and {sys.executable} cannot import it ({error}). Install "
            "it with `pip install 'agentcore-patches[ray]'`, in the version that the "
            "cluster runs."
        ) from error
    try:
        ray.init(address, log_to_driver=False, logging_level="ERROR")
        nodes = [
            Node(
                node["NodeID"], node["NodeManagerAddress"], node["NodeManagerHostname"]
            )
            for node in ray.nodes()
            if node["Alive"]
        ]
    except Exception as error:
        raise _unreachable(
            address, _line(str(error)) or type(error).__name__
        ) from error
    return sorted(nodes, key=lambda node: (node.address, node.node_id))


def _results(
    nodes: Sequence[Node], action: _Action, options: dict[str, Any], timeout: float
) -> Iterator[NodeResult]:
    """Those of nodes that answer in time, as they come."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    task = ray.remote(num_cpus=0, max_retries=0)(_task())
    deadline = monotonic() + timeout
    pending = {
        task.options(
            scheduling_strategy=NodeAffinitySchedulingStrategy(node.node_id, soft=False)
        ).remote(api.tool_version(), action, options): node
        for node in nodes
    }
    while pending:
        left = max(deadline - monotonic(), 0)
        done, _ = ray.wait(list(pending), timeout=left)
        if not done:
            return
        node = pending.pop(done[0])
        try:
            answer = ray.get(done[0])
        except ray.exceptions.RayTaskError as error:
            last = str(error).strip().rpartition("\n")[2]
            yield NodeResult(node, error=f"A bug of agentcore-patch: {_line(last)}")
        except Exception as error:
            reason = f"{type(error).__name__}: {_line(str(error))}"
            yield NodeResult(
                node, error=f"Ray did not run its task to its end: {reason}"
            )
        else:
            yield NodeResult(node, *answer)


def _task() -> Callable[[str, _Action, dict[str, Any]], _Answer]:
    """The task as a function that Ray sends whole, to nodes without this package too."""

    def agentcore_patch(
        tool_version: str, action: _Action, options: dict[str, Any]
    ) -> _Answer:
        import sys

        def refusal(found: str) -> _Answer:
            wanted = tool_version.partition("+")[0]
            advice = f"install agentcore-patches=={wanted} on each node"
            return None, None, None, f"{sys.executable} {found}; {advice}."

        try:
            from agentcore_patches import __version__, api
        except ImportError as error:
            return refusal(f"has no agentcore-patches ({error})")
        if api.tool_version() != tool_version:
            same = tool_version.startswith(f"{__version__}+")
            build = "another build of " * same
            return refusal(f"has {build}agentcore-patches {__version__}")
        from agentcore_patches import cluster

        return cluster.work(action, options)

    return agentcore_patch


def _line(text: str) -> str:
    """What somebody else says, as one line of bearable length."""
    return textwrap.shorten(click.unstyle(text), 300, placeholder=" …")


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").split("\n")
    return _line(next(filter(None, reversed(lines)), "its driver process ended"))
