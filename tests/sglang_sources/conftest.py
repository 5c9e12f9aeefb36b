"""The files of the v0.5.9 wheel that patches touch, proven to be the wheel's own."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from agentcore_patches import edits, install, plan, transaction
from agentcore_patches.errors import AgentcoreError
from agentcore_patches.patches import registry
from agentcore_patches.patches.versions import SUPPORTED_VERSIONS
from tests.helpers.planning import VERSION


@pytest.fixture(scope="session")
def pristine() -> Mapping[str, bytes]:
    """Original texts by path below `sglang`; none of the patches is in them."""
    python = os.environ.get("AGENTCORE_TEST_PYTHON")
    paths = registry.files(registry.names(), VERSION)
    try:
        found = install.find(
            python=Path(python) if python else None, supported=SUPPORTED_VERSIONS
        )
        sources = transaction.sources(found, transaction.inspect(found), paths)
    except AgentcoreError as error:
        raise pytest.UsageError(
            f"{error} These tests read the files of SGLang v{VERSION}: `make test` "
            "installs it; AGENTCORE_TEST_PYTHON names an interpreter that has it."
        ) from None
    hashes = {
        path: hashlib.sha256(source).hexdigest() for path, source in sources.items()
    }
    assert hashes == found.wheel_hashes(paths)
    return sources


@pytest.fixture(scope="session", autouse=True)
def _planned_once() -> Iterator[None]:
    """Remember what the planner made of a file: most tests change only one of them."""
    planned = cache(edits.apply_edits)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            f"{plan.__name__}.apply_edits",
            lambda source, edits: planned(source, tuple(edits)),
        )
        patched.setattr(plan, "_check", cache(plan._check))
        yield
