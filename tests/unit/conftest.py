"""What the unit tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentcore_patches.patches import registry
from tests.unit.small_sglang import EDITS, MODELS, SERVING, build


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The small SGLang's package folder; patches are `alpha`, and `beta`, which needs more files."""
    monkeypatch.setattr(registry, "names", lambda: tuple(EDITS))
    monkeypatch.setattr(registry, "WRITING_ORDER", (MODELS, SERVING))
    monkeypatch.setattr(registry, "edits", lambda name, version: EDITS[name])
    monkeypatch.setattr(registry, "summary", lambda name: f"what {name} gives")
    return build(tmp_path / "site")
