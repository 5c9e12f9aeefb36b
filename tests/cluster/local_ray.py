"""A Ray cluster on 127.0.0.1, each node with its own environment.

As a program, this module holds the cluster. Each line of its input is a node's
environment in JSON: it starts the node, and prints the node's attributes. At the end of
its input, it stops the cluster.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

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
    address: str
    """HOST:PORT of the cluster."""
    client_port: int
    """Port of ray:// on the head."""


@dataclass(frozen=True)
class LocalRay:
    """A cluster, empty at first; `env` is what a process needs to connect to it."""

    env: dict[str, str]
    _requests: IO[str]
    _answers: IO[str]

    def add_node(self, **env: str) -> LocalNode:
        """Start a node, the head first, whose workers have these variables."""
        print(json.dumps(env), file=self._requests, flush=True)
        return LocalNode(**json.loads(self._answers.readline()))


@contextmanager
def local_ray() -> Iterator[LocalRay]:
    # A short path: Ray puts sockets there, whose names may have 107 bytes.
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as folder:
        env = {**os.environ, **SETTINGS, "RAY_TMPDIR": folder}
        with (
            (Path(folder) / "holder.log").open("w") as log,
            subprocess.Popen(
                [sys.executable, __file__],
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            ) as holder,
        ):
            assert holder.stdin and holder.stdout
            process = psutil.Process(holder.pid)
            try:
                yield LocalRay(env, holder.stdin, holder.stdout)
            finally:
                started = process.children(recursive=True)
                holder.stdin.close()
                for left in psutil.wait_procs([process, *started], timeout=20)[1]:
                    left.kill()


def hold() -> None:
    """Start a node for each line of the input; stop all nodes when the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    from ray.cluster_utils import Cluster

    cluster = Cluster()
    client_port = free_port()
    try:
        for line in sys.stdin:
            head = {} if cluster.head_node else {"ray_client_server_port": client_port}
            node = cluster.add_node(
                env_vars=json.loads(line),
                num_cpus=4,
                object_store_memory=80_000_000,
                include_dashboard=False,
                include_log_monitor=False,
                **head,
            )
            (raylet,) = node.all_processes["raylet"]
            told = LocalNode(
                node.node_id, raylet.process.pid, cluster.address, client_port
            )
            print(json.dumps(told.__dict__), file=answers, flush=True)
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    hold()
