"""A cluster of three nodes, each with its own SGLang v0.5.9."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentcore_patches import apply
from agentcore_patches.patches.paths import LANDING
from tests.cluster.nodes import FILES, Cluster, Tree, local_cluster, texts


@pytest.fixture(scope="module")
def tree(
    vanilla_install: Callable[[Path], Path], tmp_path_factory: pytest.TempPathFactory
) -> Tree:
    """Copies SGLang, unpatched, with its metadata: `tree(name)` is the package."""
    folder = tmp_path_factory.mktemp("nodes")
    return lambda name: vanilla_install(folder / name)


@pytest.fixture(scope="module")
def running(tree: Tree) -> Iterator[Cluster]:
    with local_cluster() as cluster:
        for name in ("first", "second", "third"):
            cluster.nodes.append(cluster.add(tree(name)))
        yield cluster


@pytest.fixture(scope="module")
def released(tree: Tree) -> dict[str, bytes]:
    """The files that tests change, as released."""
    package = tree("released")
    paths = ("version.py", "_version.py", *FILES)
    return {
        path: (package / path).read_bytes()
        for path in paths
        if (package / path).is_file()
    }


@pytest.fixture
def cluster(running: Cluster, released: dict[str, bytes]) -> Iterator[Cluster]:
    """The cluster with every SGLang as released."""
    yield running
    for node in running.nodes:
        for folder in (".agentcore-patch", LANDING):
            shutil.rmtree(node.package / folder, ignore_errors=True)
        for path, text in released.items():
            (node.package / path).write_bytes(text)


@pytest.fixture(scope="module")
def patched(tree: Tree) -> dict[str, bytes]:
    """The files as apply patches them on this machine."""
    package = tree("alone")
    apply(sglang_dir=package)
    return texts(package)
