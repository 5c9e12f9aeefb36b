"""`--ray` and the runtime_env on a real cluster, each node with its own SGLang v0.5.9."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil

import agentcore_patches
from agentcore_patches import status
from agentcore_patches.cluster import apply_on_ray, status_on_ray
from agentcore_patches.cluster.results import NodeResult
from agentcore_patches.installs.install import find
from agentcore_patches.state import transaction
from tests.cluster.nodes import (
    COMMAND,
    FILES,
    Cluster,
    Node,
    Tree,
    kill,
    texts,
    workers,
)
from tests.helpers.documents import Nodes, mismatches
from tests.helpers.waiting import wait_until

EXAMPLE = Path(__file__).parents[2] / "examples" / "ray_runtime_env.py"
CHAT = "srt/entrypoints/openai/serving_chat.py"
WRITTEN = f"{len(FILES)} files written"
IN_PLACE = "core in place"


def rows(shown: str) -> dict[str, list[str]]:
    """Return the cells of a table's rows, by the node's short ID."""
    table = shown.partition("\n\n")[0].splitlines()[1:]
    cells = [re.split(" {2,}", line.strip()) for line in table]
    return {row[2]: row for row in cells}


def test_every_node_is_patched_once(
    cluster: Cluster, patched: dict[str, bytes]
) -> None:
    first = cluster.run("apply", "--ray", cluster.address)

    assert (first.returncode, first.stderr) == (0, "")
    shown = rows(first.stdout)
    assert set(shown) == {node.node_id[:8] for node in cluster.nodes}
    for node in cluster.nodes:
        row = shown[node.node_id[:8]]
        where = f"0.5.9 in {node.package}"
        assert row[0] == "127.0.0.1"
        assert row[3:] == ["not applied", WRITTEN, IN_PLACE, where, sys.executable]
        assert texts(node.package) == patched
    assert "The patches are in place on all 3 nodes." in first.stdout

    client = f"ray://127.0.0.1:{cluster.client_port}"
    second = cluster.run("apply", "--json", "--ray", client)

    assert (second.returncode, second.stderr) == (0, ""), second.stdout
    document = json.loads(second.stdout)
    assert mismatches(document, Nodes) == []
    assert (document["complete"], document["changed"]) == (True, False)
    for told in document["nodes"]:
        assert told["before"] == told["status"]
        assert told["applied"]["changed"] is False
        assert (told["error"], told["python"]) == (None, sys.executable)

    checked = cluster.run("status", "--check", "--ray", cluster.address)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_nodes_that_cannot_be_patched_report_the_reason(
    cluster: Cluster, patched: dict[str, bytes]
) -> None:
    good, conflicting, newer = cluster.nodes
    (conflicting.package / CHAT).write_text("class OpenAIServingChat: ...\n")
    (newer.package / "version.py").write_text('__version__ = "0.6.1"\n')
    (newer.package / "_version.py").unlink(missing_ok=True)

    ran = cluster.run("apply", "--ray", cluster.address)

    assert (ran.returncode, ran.stderr) == (1, "")
    shown = rows(ran.stdout)
    assert shown[good.node_id[:8]][4:6] == [WRITTEN, IN_PLACE]
    assert texts(good.package) == patched
    assert shown[conflicting.node_id[:8]][4:6] == ["failed", "not applied"]
    where = f"0.6.1 in {newer.package}"
    assert shown[newer.node_id[:8]][3:] == [
        *("not applied", "failed", "not applied", where, sys.executable)
    ]
    (conflict,) = lines_about(conflicting, ran.stdout)
    assert CHAT in conflict and "Nothing was written" in conflict
    (version,) = lines_about(newer, ran.stdout)
    assert "SGLang 0.6.1" in version and "supports SGLang 0.5.8 to" in version
    assert "2 of 3 nodes failed." in ran.stdout

    checked = cluster.run("status", "--check", "--json", "--ray", cluster.address)
    assert checked.returncode == 1
    document = json.loads(checked.stdout)
    assert mismatches(document, Nodes) == []
    assert document["complete"] is False
    told = {node["node_id"]: node for node in document["nodes"]}
    assert told[good.node_id]["status"]["complete"] is True
    assert told[conflicting.node_id]["status"]["complete"] is False
    assert told[newer.node_id]["status"]["sglang"]["release"] is None
    assert told[newer.node_id]["error"] is None


def lines_about(node: Node, shown: str) -> list[str]:
    start = f"127.0.0.1 {os.uname().nodename} {node.node_id[:8]}: "
    return [line for line in shown.splitlines() if line.startswith(start)]


def test_a_hanging_node_times_out(cluster: Cluster) -> None:
    last = cluster.nodes[-1]
    raylet = last.raylet
    raylet.suspend()
    try:
        start = time.monotonic()
        answers = status_on_ray(cluster.address, timeout=4)
        assert time.monotonic() - start < 4 + 30
    finally:
        raylet.resume()

    (error,) = [a.error for a in answers if a.node.node_id == last.node_id]
    assert str(error).startswith("It did not answer within 4 s.")
    # The next test needs all nodes.
    wait_until(
        lambda: (
            [a.error for a in status_on_ray(cluster.address)]
            == [None] * len(cluster.nodes)
        )
    )


def test_ctrl_c_stops_the_command_and_all_its_processes(cluster: Cluster) -> None:
    held = cluster.nodes[-1].package
    with transaction.locked(find(held)):
        command = subprocess.Popen(
            [sys.executable, *COMMAND, "apply", "--ray", cluster.address],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            wait_until(
                lambda: all(
                    status(sglang_dir=node.package).complete
                    for node in cluster.nodes[:-1]
                )
            )
            (driver,) = psutil.Process(command.pid).children()
            os.killpg(command.pid, signal.SIGINT)
            out, err = command.communicate(timeout=30)
        finally:
            command.kill()
    assert (command.returncode, out) == (130, ""), f"{out}\n{err}"
    assert err.lstrip().startswith("error: Interrupted.")
    assert not driver.is_running()
    wait_until(lambda: not workers(cluster.nodes))
    assert not status(sglang_dir=held).complete


CROWD = """
import json, os, subprocess, sys
import ray
sys.path.insert(0, {folder!r})
from ray_runtime_env import RUNTIME_ENV
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On

ray.init(runtime_env=RUNTIME_ENV)

@ray.remote(num_cpus=0)
class Worker:
    def path(self):
        return os.getpid(), os.environ["PYTHONPATH"], "sglang" in sys.modules

    def imports(self):
        code = ("from sglang.srt.entrypoints.openai.protocol import *; "
                "print('token_ids' in ChatCompletionResponseChoice.model_fields)")
        ran = subprocess.run([{python!r}, "-c", code], capture_output=True, text=True)
        return ran.stdout.strip()

nodes = {nodes!r}
crowd = [Worker.options(scheduling_strategy=On(nodes[i % len(nodes)], soft=False)).remote()
         for i in range(12)]
print(json.dumps(ray.get([worker.path.remote() for worker in crowd])))
print(json.dumps(ray.get(crowd[0].imports.remote())))
"""


def test_workers_that_start_together_all_import_patched_sources(
    cluster: Cluster, patched: dict[str, bytes], sglang_python: Path
) -> None:
    code = CROWD.format(
        folder=str(EXAMPLE.parent),
        python=str(sglang_python),
        nodes=[node.node_id for node in cluster.nodes],
    )

    ran = cluster.python("-c", code, RAY_ADDRESS=cluster.address)

    assert ran.returncode == 0, ran.stderr
    started, imported = map(json.loads, ran.stdout.splitlines())
    assert len({pid for pid, _, _ in started}) == 12
    assert not any(early for _, _, early in started)
    paths = {path for _, path, _ in started}
    assert paths == {str(node.package.parent) for node in cluster.nodes}
    assert imported == "True"
    for node in cluster.nodes:
        assert texts(node.package) == patched


REFUSED = """
import sys
import ray
sys.path.insert(0, {folder!r})
from ray_runtime_env import RUNTIME_ENV, rollout

ray.init(runtime_env=RUNTIME_ENV)
ray.get(rollout.options(max_retries=0).remote())
"""


def test_no_worker_starts_if_its_sources_cannot_be_patched(cluster: Cluster) -> None:
    for node in cluster.nodes:
        (node.package / CHAT).write_text("class OpenAIServingChat: ...\n")
    code = REFUSED.format(folder=str(EXAMPLE.parent))

    ran = cluster.python("-c", code, RAY_ADDRESS=cluster.address)

    assert ran.returncode == 1
    assert "agentcore_patches.errors.SourceConflict" in ran.stdout + ran.stderr


def test_lost_and_unsuitable_nodes_do_not_delay_the_others(
    cluster: Cluster, tree: Tree, tmp_path: Path, patched: dict[str, bytes]
) -> None:
    without = tmp_path / "without"
    without.mkdir()
    (without / "agentcore_patches.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'agentcore_patches'\")\n"
    )
    older = Path(
        shutil.copytree(
            Path(agentcore_patches.__file__).parent,
            tmp_path / "older" / "agentcore_patches",
        )
    )
    (older / "_version.py").write_text('__version__ = "0.0.7"\n')
    lost = tree("lost")
    bare = cluster.add(cluster.nodes[0].package, without)
    outdated = cluster.add(cluster.nodes[0].package, older.parent)
    doomed = cluster.add(lost)
    answers: list[NodeResult] = []
    asking = threading.Thread(
        target=lambda: answers.extend(apply_on_ray(cluster.address))
    )
    with transaction.locked(find(lost)):
        asking.start()
        wait_until(
            lambda: all(
                status(sglang_dir=node.package).complete for node in cluster.nodes
            )
        )
        wait_until(lambda: workers([doomed]))
        kill(doomed)
        asking.join(30)
        assert not asking.is_alive()
    for node in (bare, outdated):
        node.raylet.terminate()

    errors = {answer.node.node_id: answer.error for answer in answers}
    assert "has no agentcore-patches" in str(errors[bare.node_id])
    assert "agentcore-patches==" in str(errors[bare.node_id])
    assert "has agentcore-patches 0.0.7; install" in str(errors[outdated.node_id])
    assert "Ray did not finish its task" in str(errors[doomed.node_id])
    assert texts(lost) != patched
    for node in cluster.nodes:
        assert errors[node.node_id] is None
        assert texts(node.package) == patched
