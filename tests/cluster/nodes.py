"""A Ray cluster on 127.0.0.1, each node with its own environment and SGLang."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from agentcore_patches.patches import registry
from agentcore_verify.server import free_port
from tests.helpers.planning import VERSION

COMMAND = ("-m", "agentcore_patches")
FILES = registry.files([registry.CORE], VERSION)

Tree = Callable[[str], Path]

SETTINGS = {
    # Otherwise Ray replaces 127.0.0.1 by a public address, and binds to all.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Otherwise a Ray that a program starts writes a token into the home folder.
    "RAY_AUTH_MODE": "disabled",
    # Otherwise workers get a thirtieth of a busy machine: they wait for each other
    # longer than `apply` waits for its lock.
    "RAY_worker_niceness": "0",
    # Otherwise the first driver starts as many workers as a node has CPUs.
    "RAY_prestart_worker_first_driver": "0",
    # Otherwise a client's server may crash: Ray forks it while threads call into gRPC.
    "GRPC_ENABLE_FORK_SUPPORT": "0",
}


@dataclass(frozen=True)
class Node:
    """A node of the cluster and the SGLang that its workers import.

    `raylet` is the process whose children its workers are.
    """

    node_id: str
    raylet: psutil.Process
    package: Path


@dataclass
class Cluster:
    """A cluster, empty at first; `client_port` is the port of ray:// on the head."""

    ray: Any
    client_port: int
    nodes: list[Node] = field(default_factory=list)

    @property
    def address(self) -> str:
        return str(self.ray.address)

    def add(self, package: Path, *before: Path) -> Node:
        """Add a node whose workers import from these folders, then from the package's."""
        path = os.pathsep.join(str(folder) for folder in (*before, package.parent))
        head = {"ray_client_server_port": self.client_port}
        node = self.ray.add_node(
            env_vars={"PYTHONPATH": path},
            num_cpus=4,
            object_store_memory=80_000_000,
            include_dashboard=False,
            include_log_monitor=False,
            **({} if self.ray.head_node else head),
        )
        (raylet,) = node.all_processes["raylet"]
        return Node(node.node_id, psutil.Process(raylet.process.pid), package)

    def run(self, *args: str) -> subprocess.CompletedProcess[str]:
        """Run the command."""
        return self.python(*COMMAND, *args)

    def python(self, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run this Python, with these variables set as well."""
        return subprocess.run(
            [sys.executable, *args],
            env={**os.environ, **env},
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )


@contextmanager
def local_cluster() -> Iterator[Cluster]:
    """Hold a cluster, for this process and its children to connect to."""
    earlier = psutil.Process().children()
    # A short path: Ray puts sockets there, whose names may have 107 bytes.
    with (
        tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as folder,
        pytest.MonkeyPatch.context() as environment,
    ):
        for name, value in {**SETTINGS, "RAY_TMPDIR": folder}.items():
            environment.setenv(name, value)
        import ray.cluster_utils

        cluster = ray.cluster_utils.Cluster()
        try:
            yield Cluster(cluster, free_port())
        finally:
            started = [one for one in psutil.Process().children() if one not in earlier]
            cluster.shutdown()
            for left in psutil.wait_procs(started, timeout=20)[1]:
                left.kill()


def texts(package: Path) -> dict[str, bytes]:
    """Return the files that apply writes; created files may be absent."""
    files = {path: package / path for path in FILES}
    return {path: file.read_bytes() for path, file in files.items() if file.is_file()}


def workers(nodes: Iterable[Node]) -> list[psutil.Process]:
    return [
        process
        for node in nodes
        for process in node.raylet.children()
        if command_line(process)[:1] == ["ray::agentcore_patch"]
    ]


def command_line(process: psutil.Process) -> list[str]:
    """Return the command line of a process; empty if it has exited."""
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


def kill(node: Node) -> None:
    """Kill the node like a power cut."""
    for process in (node.raylet, *node.raylet.children(recursive=True)):
        process.kill()
