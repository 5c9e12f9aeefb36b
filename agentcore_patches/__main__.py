"""`python -m agentcore_patches` is `agentcore-patch`."""

from __future__ import annotations

import sys

from agentcore_patches.command.cli import main

if __name__ == "__main__":
    sys.exit(main())
