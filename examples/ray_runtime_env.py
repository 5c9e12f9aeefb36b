"""Have every worker of a Ray job patch its SGLang before anything can import it.

    python examples/ray_runtime_env.py                          a Ray of its own
    RAY_ADDRESS=10.0.0.1:6379 python examples/ray_runtime_env.py    a running cluster

agentcore-patches and SGLang must be installed on each node. The first worker of a node
patches the files; the others wait, and find the patches in place. If that fails,
`apply` raises, the worker does not start and its tasks fail: nothing trains on
unpatched SGLang.
"""

from __future__ import annotations

import ray

RUNTIME_ENV = {"worker_process_setup_hook": "agentcore_patches.apply"}


@ray.remote
def rollout() -> str:
    """Stand for a task that imports SGLang; return the package it would import."""
    import os

    from agentcore_patches import status

    found = status()
    state = "complete" if found.complete else "NOT COMPLETE"
    return f"worker {os.getpid()}: {found.install.package} is {state}"


if __name__ == "__main__":
    ray.init(runtime_env=RUNTIME_ENV)
    print(*ray.get([rollout.remote() for _ in range(8)]), sep="\n")
