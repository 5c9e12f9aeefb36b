"""Commands that start fast: the transactions alone, or the real command.

    driver.py PACKAGE ACTION    run a transaction
    driver.py                   run each request on stdin in a fork

A fork has everything imported, and stops itself before the command, so that a tracer
sees only the command. The plan of `apply` depends only on the sources, so it is made
once for all forks with the same sources.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

from agentcore_patches import api
from agentcore_patches.errors import AgentcoreError
from agentcore_patches.patches import registry
from agentcore_patches.patches.releases import SUPPORTED_VERSIONS
from agentcore_patches.planning import run as planning_run
from agentcore_patches.planning.plan import Plan, make_plan
from agentcore_patches.planning.selection import Selection
from tests.faults import trees


def run(package: Path, action: str) -> int:
    """Run an action of `trees.run`; return the command's exit code."""
    try:
        trees.run(package, action)
    except AgentcoreError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


_plans: dict[object, Plan] = {}


def remembered_plan(
    sources: Mapping[str, bytes],
    selection: Selection,
    read: Callable[[str], bytes | None],
) -> Plan:
    """Call `make_plan` once for the same texts; remember its result."""
    key = (tuple(sources.items()), selection)
    if key not in _plans:
        _plans[key] = make_plan(sources, selection, read)
    return _plans[key]


def serve() -> None:
    """For each request on stdin: fork, print the stopped fork's ID, then its exit code."""
    mock.patch.object(planning_run, "make_plan", remembered_plan).start()
    for line in sys.stdin:
        request = json.loads(line)
        action, *options = request["args"]
        if options:
            # All imports of the command, including libcst.
            for name in registry.names():
                registry.edits(name, SUPPORTED_VERSIONS[-1])
            if action == "apply" and not _plans:
                api.apply(sglang_dir=request["package"], dry_run=True)
        child = os.fork()
        if child == 0:
            run_stopped(request)
        os.waitpid(child, os.WUNTRACED)
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def run_stopped(request: Any) -> None:
    """Wait for SIGCONT, run a command with output to a file, and exit this process."""
    code = 1
    try:
        output = os.open(request["output"], os.O_WRONLY | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        args = request["args"]
        if len(args) > 1:
            from agentcore_patches.command import cli
        os.kill(os.getpid(), signal.SIGSTOP)
        code = cli.main(args) if len(args) > 1 else run(Path(request["package"]), *args)
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    if sys.argv[1:]:
        sys.exit(run(Path(sys.argv[1]), sys.argv[2]))
    serve()
