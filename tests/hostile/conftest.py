"""Installs of another user, and what that user may plant in them."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentcore_patches.planning import run as planning_run
from agentcore_patches.planning.plan import Plan, make_plan
from tests.helpers.users import give_away, require_root
from tests.hostile.planting import Planted
from tests.unit.conftest import install as install
from tests.unit.conftest import package as package
from tests.unit.conftest import run as run
from tests.unit.small_install import TRACES
from tests.unit.small_sglang import build


@pytest.fixture(autouse=True)
def no_waiting() -> Iterator[None]:
    """Interrupt a test that hangs on a FIFO without a writer."""
    signal.alarm(120)
    yield
    signal.alarm(0)


@pytest.fixture
def landing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans that create a file as well."""

    def make(sources: Mapping[str, bytes], *more: Any, **named: Any) -> Plan:
        made = make_plan(sources, *more, **named)
        return replace(made, files={TRACES: b"TRACES = 1\n", **made.files})

    monkeypatch.setattr(planning_run, "make_plan", make)


@pytest.fixture
def planted(package: Path) -> Iterator[Planted]:
    """The small SGLang of another user, in a folder open to everybody; needs root.

    Beside it are files that only root may read or write.
    """
    require_root()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        root.chmod(0o755)
        secrets = root / "secrets"
        secrets.mkdir()
        (secrets / "secret").write_text("known to root alone")
        (secrets / "secret").chmod(0o640)
        place = build(root / "site")
        shutil.copytree(root / "site", root / "copy")
        give_away(root / "site")
        groups = os.getgroups()
        os.setgroups([0])
        yield Planted(place, secrets)
        assert (os.geteuid(), os.getegid(), os.getgroups()) == (0, 0, [0])
        os.setgroups(groups)
