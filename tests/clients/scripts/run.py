"""Runs a script here in the environment of its client: `PYTHON run.py SCRIPT`.

The script's `read` takes the task, {"base_url": ..., "messages": [...], ...}, from standard
input as JSON, and what it returns is printed: {HOW: {"prompt": ..., "token_ids": ...,
"logprobs": ...}}, the lists that the client has after each way of asking, null for what it
has not.
"""

from __future__ import annotations

import importlib
import json
import sys

if __name__ == "__main__":
    read = importlib.import_module(sys.argv[1]).read
    json.dump(read(json.load(sys.stdin)), sys.stdout)
