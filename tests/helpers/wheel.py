"""The files of the installed SGLang wheel that patches change, proven to be its own."""

from __future__ import annotations

import hashlib
import os
from functools import cache

import pytest

from agentcore_patches import install
from agentcore_patches.errors import AgentcoreError
from agentcore_patches.install import Install
from agentcore_patches.patches import registry
from agentcore_patches.patches.files import LANDED
from agentcore_patches.state import transaction
from agentcore_patches.state.originals import Originals
from tests.helpers.planning import VERSION


@cache
def installed() -> Install:
    """The SGLang of AGENTCORE_TEST_PYTHON, or of this interpreter."""
    python = os.environ.get("AGENTCORE_TEST_PYTHON") or None
    try:
        return install.find(python=python)
    except AgentcoreError as error:
        raise pytest.UsageError(
            f"{error} These tests read the files of SGLang v{VERSION}: `make test` "
            "installs it; AGENTCORE_TEST_PYTHON names an interpreter that has it."
        ) from None


def read(path: str) -> bytes | None:
    """The text of a file below `sglang` as it is installed."""
    file = installed().package / path
    return file.read_bytes() if file.is_file() else None


@cache
def originals() -> dict[str, bytes]:
    """The original texts of all files that patches change, by path below `sglang`.

    The modules that land are not among them.
    """
    files = registry.files(registry.names(), VERSION)
    paths = [path for path in files if path not in LANDED]
    found = installed()
    try:
        sources = Originals(found, transaction.inspect(found)).texts(paths)
    except AgentcoreError as error:
        raise pytest.UsageError(str(error)) from None
    assert _hashes(sources) == found.wheel_hashes(paths)
    return sources


def _hashes(sources: dict[str, bytes]) -> dict[str, str]:
    return {path: hashlib.sha256(text).hexdigest() for path, text in sources.items()}
