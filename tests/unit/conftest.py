"""Fixtures of the unit tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from agentcore_patches.command import cli
from agentcore_patches.installs.install import Install
from agentcore_patches.patches import registry
from tests.unit.running import Ran, Run
from tests.unit.small_install import ALL, photograph, vanilla
from tests.unit.small_sglang import EDITS, ENGINE, MODELS, SERVING, build

# The time of an example depends more on the machine than on the code.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The small SGLang's package folder, for a small core and the extra `beta`."""
    monkeypatch.setattr(registry, "extras", lambda: ("beta",))
    monkeypatch.setattr(registry, "WRITING_ORDER", (MODELS, SERVING, ENGINE))
    monkeypatch.setattr(registry, "EVER_PATCHED", (MODELS, SERVING, ENGINE))
    monkeypatch.setattr(registry, "edits", lambda name, version: EDITS[name])
    monkeypatch.setattr(registry, "summary", lambda name: f"what {name} gives")
    return build(tmp_path / "site")


@pytest.fixture
def run(package: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command on the small SGLang: `run("apply", "--json")`."""

    def run(*args: str) -> Ran:
        on_target = args[0] in ("apply", "status", "revert")
        on_target &= "--sglang-dir" not in args
        target = ["--sglang-dir", str(package)] if on_target else []
        return Ran(cli.main([*args, *target]), *capsys.readouterr())

    return run


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """A package of three files, for transactions alone."""
    monkeypatch.setattr(registry, "WRITING_ORDER", ALL)
    monkeypatch.setattr(registry, "EVER_PATCHED", ALL)
    package = tmp_path / "sglang"
    for path in ALL:
        file = package / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(vanilla(path))
        os.utime(file, (1_600_000_000, 1_600_000_000))
    return Install(package, "0.5.9", "0.5.9", "a test", False, None)


@pytest.fixture
def unchanged(install: Install) -> Iterator[None]:
    """Check that the files at the start of the test are unchanged at its end."""
    before = photograph(install)
    yield
    assert photograph(install) == before
