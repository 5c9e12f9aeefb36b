"""A running cluster, its nodes, and the SGLang that each of them has."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

from agentcore_patches.patches import registry
from tests.cluster.local_ray import LocalNode, LocalRay
from tests.helpers.planning import VERSION

COMMAND = ("-m", "agentcore_patches")
FILES = registry.files(registry.names(), VERSION)

Tree = Callable[[str], Path]


@dataclass(frozen=True)
class Member:
    """A node of the cluster and the SGLang that its workers import."""

    node: LocalNode
    package: Path


@dataclass(frozen=True)
class Cluster:
    ray: LocalRay
    members: tuple[Member, ...]

    @property
    def address(self) -> str:
        return self.ray.address

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


def add(ray: LocalRay, package: Path, *before: Path) -> LocalNode:
    """Add a node whose workers import from these folders, then from the package's."""
    path = os.pathsep.join(str(folder) for folder in (*before, package.parent))
    return ray.add_node(PYTHONPATH=path)


def texts(package: Path) -> dict[str, bytes]:
    """Return the files that apply writes; created files may be absent."""
    files = {path: package / path for path in FILES}
    return {path: file.read_bytes() for path, file in files.items() if file.is_file()}


def workers(nodes: Iterable[LocalNode]) -> list[psutil.Process]:
    return [
        process
        for node in nodes
        for process in psutil.Process(node.raylet).children()
        if command_line(process)[:1] == ["ray::agentcore_patch"]
    ]


def command_line(process: psutil.Process) -> list[str]:
    """Return the command line of a process; empty if it has exited."""
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


def kill(node: LocalNode) -> None:
    """Kill the node like a power cut."""
    raylet = psutil.Process(node.raylet)
    for process in (raylet, *raylet.children(recursive=True)):
        process.kill()
