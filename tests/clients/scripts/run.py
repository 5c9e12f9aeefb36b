"""Run a script of this folder in its client's environment: `PYTHON run.py SCRIPT`.

The task, {"base_url": ..., "messages": [...], ...}, is read from standard input as JSON
and passed to the script's `read`. Its result is printed: {HOW: [PROMPT, TOKEN_IDS,
LOGPROBS]}, the client's lists after each kind of request, null for missing ones.
"""

from __future__ import annotations

import importlib
import json
import sys

if __name__ == "__main__":
    read = importlib.import_module(sys.argv[1]).read
    json.dump(read(json.load(sys.stdin)), sys.stdout)
