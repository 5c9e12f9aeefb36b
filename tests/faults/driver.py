"""The transactions alone, as a program that starts fast: `driver.py PACKAGE COMMAND`."""

from __future__ import annotations

import sys
from pathlib import Path

from agentcore_patches import transaction
from agentcore_patches.errors import AgentcoreError
from tests.faults import trees


def main(package: Path, command: str) -> None:
    """Run `apply`, `upgrade`, `revert` or `status` on a tree of `trees.build`."""
    install = trees.install_of(package)
    if command == "status":
        print(transaction.inspect_and_recover(install))
        return
    with transaction.locked(install) as work:
        if command == "revert":
            print(work.revert())
        elif not work.snapshot.holds([command], "1"):
            paths = trees.SELECTIONS[command]
            work.sources(paths)
            files = {path: trees.text(path, command) for path in paths}
            print(work.commit(files, patches=[command], tool_version="1"))


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), sys.argv[2])
    except AgentcoreError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
