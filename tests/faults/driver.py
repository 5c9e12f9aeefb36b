"""Run transactions that start fast, on the small package of `trees`.

    driver.py PACKAGE ACTION    run a transaction
    driver.py                   run each request on stdin in a fork

A fork has everything imported, and stops itself before the transaction, so that a
tracer sees nothing else.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

from agentcore_patches.errors import AgentcoreError
from tests.faults import trees


def run(package: Path, action: str) -> int:
    """Run an action of `trees.run`; return the command's exit code."""
    try:
        trees.run(package, action)
    except AgentcoreError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


def serve() -> None:
    """For each request on stdin: fork, print the stopped fork's ID, then its exit code."""
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            run_stopped(json.loads(line))
        os.waitpid(child, os.WUNTRACED)
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def run_stopped(request: Any) -> None:
    """Wait for SIGCONT, run a transaction with output to a file, and exit."""
    code = 1
    try:
        output = os.open(request["output"], os.O_WRONLY | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.kill(os.getpid(), signal.SIGSTOP)
        code = run(Path(request["package"]), request["action"])
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    if sys.argv[1:]:
        sys.exit(run(Path(sys.argv[1]), sys.argv[2]))
    serve()
