"""A Ray cluster on 127.0.0.1, each node with its own environment."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psutil
import pytest

from agentcore_verify.server import free_port

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
class LocalNode:
    """One node of the cluster; `raylet` is the process whose children its workers are."""

    node_id: str
    raylet: int


@dataclass(frozen=True)
class LocalRay:
    """A cluster, empty at first; `client_port` is the port of ray:// on the head."""

    _cluster: Any
    client_port: int

    @property
    def address(self) -> str:
        """HOST:PORT of the cluster."""
        return str(self._cluster.address)

    def add_node(self, **env: str) -> LocalNode:
        """Start a node, the head first, whose workers have these variables."""
        head = {"ray_client_server_port": self.client_port}
        node = self._cluster.add_node(
            env_vars=env,
            num_cpus=4,
            object_store_memory=80_000_000,
            include_dashboard=False,
            include_log_monitor=False,
            **({} if self._cluster.head_node else head),
        )
        (raylet,) = node.all_processes["raylet"]
        return LocalNode(node.node_id, raylet.process.pid)


@contextmanager
def local_ray() -> Iterator[LocalRay]:
    """Hold a cluster, for this process and its children to connect to."""
    earlier = psutil.Process().children()
    # A short path: Ray puts sockets there, whose names may have 107 bytes.
    with (
        tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as folder,
        pytest.MonkeyPatch.context() as environment,
    ):
        for name, value in {**SETTINGS, "RAY_TMPDIR": folder}.items():
            environment.setenv(name, value)
        from ray.cluster_utils import Cluster

        cluster = Cluster()
        try:
            yield LocalRay(cluster, free_port())
        finally:
            started = [one for one in psutil.Process().children() if one not in earlier]
            cluster.shutdown()
            for left in psutil.wait_procs(started, timeout=20)[1]:
                left.kill()
