"""Environments with one client each, and a router in front of the server."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests

from agentcore_verify.server import Server
from tests.helpers.servers import free_port

Environment = Callable[[str], Path]
"""Gives the interpreter of an environment that has a requirement installed."""


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    made: dict[str, Path] = {}
    uv = Path(sys.executable).parent / "uv"

    def make(requirement: str) -> Path:
        if requirement not in made:
            folder = tmp_path_factory.mktemp("client")
            python = folder / "bin/python"
            base = [uv, "--quiet", "--no-config"]
            subprocess.run(
                [*base, "venv", "--python", sys.executable, "--clear", folder],
                check=True,
            )
            subprocess.run(
                [*base, "pip", "install", "--python", python, requirement], check=True
            )
            made[requirement] = python
        return made[requirement]

    return make
