"""The process that is a Ray driver, and the task that it runs on each node."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, is_dataclass
from multiprocessing.connection import Connection
from time import monotonic
from typing import Any, Literal, TypeAlias

from agentcore_patches import api
from agentcore_patches.cluster.results import RayNode
from agentcore_patches.errors import AccessError, AgentcoreError, UsageError

Action: TypeAlias = Literal["apply", "status"]


def main(fd: int) -> None:
    """Read one request from a connection, and answer it there.

    All messages are JSON. The request has `address`, `action`, `options` and `timeout`.
    The replies are the `nodes`, then for each node that answers in time its `node_id` with
    its `answer` or an `error`, then an empty message. Without a connection to the cluster,
    the only reply is the `error`, with `usage` if it is a usage error.
    """
    with Connection(fd) as connection:

        def send(message: dict[str, Any]) -> None:
            connection.send_bytes(json.dumps(message).encode())

        request = json.loads(connection.recv_bytes())
        try:
            nodes = _connect(request["address"])
        except AgentcoreError as error:
            usage = isinstance(error, UsageError)
            send({"error": error.message, "hint": error.hint, "usage": usage})
            return
        send({"nodes": [asdict(node) for node in nodes]})
        for result in _results(
            nodes, request["action"], request["options"], request["timeout"]
        ):
            send(result)
        send({})
        import ray

        ray.shutdown()


def run_on_node(action: Action, options: dict[str, Any]) -> str:
    """Run the command on a node; the reply includes its errors.

    Returns the attributes of a NodeResult as JSON, without the node.
    """
    target = {name: options[name] for name in ("sglang_dir", "python")}
    before = applied = after = error = None
    try:
        if action == "apply":
            before = api.status(**target)
            try:
                applied = api.apply(**options)
            except AgentcoreError as failure:
                error = str(failure)
        after = api.status(**target)
    except AgentcoreError as failure:
        error = error or str(failure)
    if applied and after and not applied.dry_run and not after.complete:
        error = "The sources were changed again right after they were patched."
    error = error and " ".join(error.split())
    answer = {"before": before, "applied": applied, "status": after, "error": error}
    return json.dumps({**answer, "python": sys.executable}, default=_plain)


def _plain(value: Any) -> Any:
    return asdict(value) if is_dataclass(type(value)) else str(value)


def unreachable(address: str, reason: str) -> AccessError:
    return AccessError(
        f"Cannot connect to a Ray cluster at {address}: {reason.rstrip('.')}. Nothing was "
        "changed.",
        hint="On a node of the cluster, use `auto` or HOST:PORT of the head (port "
        "6379 unless chosen otherwise); from elsewhere, ray://HOST:10001.",
    )


def one_line(text: str) -> str:
    """Shorten another program's text to one line of at most 300 characters.

    A traceback is cut to its last line: Ray's client passes on its server's traceback.
    """
    import textwrap

    import click

    if "Traceback (most recent call last)" in text:
        text = text.strip().rpartition("\n")[2]
    return textwrap.shorten(click.unstyle(text), 300, placeholder=" …")


def _connect(address: str) -> list[RayNode]:
    """Make this process a driver of the cluster; return its live nodes, by address."""
    try:
        import ray
    except ImportError as error:
        raise UsageError(
            f"--ray needs Ray, and {sys.executable} cannot import it ({error}).",
            hint="Install it with `pip install 'agentcore-patches[ray]'`, in the version "
            "that the cluster runs.",
        ) from error
    try:
        ray.init(address, log_to_driver=False, logging_level="ERROR")
        nodes = [
            RayNode(
                node["NodeID"], node["NodeManagerAddress"], node["NodeManagerHostname"]
            )
            for node in ray.nodes()
            if node["Alive"]
        ]
    except Exception as error:
        reason = one_line(str(error)) or type(error).__name__
        raise unreachable(address, reason) from error
    return sorted(nodes, key=lambda node: (node.address, node.node_id))


def _results(
    nodes: Sequence[RayNode], action: Action, options: dict[str, Any], timeout: float
) -> Iterator[dict[str, Any]]:
    """Yield a message for each node that answers in time, in the order of the answers."""
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
            last = one_line(str(error).strip().rpartition("\n")[2])
            found = {"error": f"A bug in agentcore-patch: {last}"}
        except Exception as error:
            reason = f"{type(error).__name__}: {one_line(str(error))}"
            found = {"error": f"Ray did not finish its task: {reason}"}
        else:
            found = {"answer": answer if isinstance(answer, str) else ""}
        yield {"node_id": node.node_id, **found}


def _task() -> Callable[[str, Action, dict[str, Any]], str]:
    """Return the task. Ray pickles it whole: it also runs where this package is missing."""

    def agentcore_patch(
        tool_version: str, action: Action, options: dict[str, Any]
    ) -> str:
        import json
        import sys

        def refusal(found: str) -> str:
            wanted = tool_version.partition("+")[0]
            advice = f"install agentcore-patches=={wanted} on each node"
            answer = {"before": None, "applied": None, "status": None}
            error = f"{sys.executable} {found}; {advice}."
            return json.dumps({**answer, "error": error, "python": sys.executable})

        try:
            from agentcore_patches import __version__
        except ImportError as error:
            return refusal(f"has no agentcore-patches ({error})")
        try:
            from agentcore_patches import api
            from agentcore_patches.cluster import driver
            from agentcore_patches.state import records

            same_build = records.is_same_build(api.tool_version(), tool_version)
        except (ImportError, AttributeError):
            same_build = False
        if not same_build:
            same_version = tool_version.startswith(f"{__version__}+")
            build = "another build of " if same_version else ""
            return refusal(f"has {build}agentcore-patches {__version__}")
        return driver.run_on_node(action, options)

    return agentcore_patch
