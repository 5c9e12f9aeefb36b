"""`verify --base-url` and the patches that a running server reports."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from agentcore_patches.patches import registry
from agentcore_verify.runner import Options, _Run


def told(**info: Any) -> tuple[str, dict[str, str]]:
    """The notes, and the messages for the patches that are missing."""
    run = _Run(Options(), progress=None)  # type: ignore[arg-type]
    missing = run._missing_on(SimpleNamespace(info=info))  # type: ignore[arg-type]
    return " ".join(run.notes), missing


def test_a_patched_server_is_told_with_its_version() -> None:
    notes, missing = told(
        agentcore_patches={
            "version": "0.9",
            "patches": list(registry.names()),
            "release": "0.5.9",
        }
    )
    assert (
        notes == f"The server has agentcore-patch 0.9: {', '.join(registry.names())}."
    )
    assert missing == {}


def test_a_patch_that_a_server_lacks_is_missing() -> None:
    has = [name for name in registry.names() if name != "tito"]
    notes, missing = told(
        agentcore_patches={"version": "0.9", "patches": has, "release": None}
    )
    assert list(missing) == ["tito"]
    assert "Run `agentcore-patch apply` on its machine" in missing["tito"]
    assert "That version lists no such SGLang." in notes


@pytest.mark.parametrize("info", [{}, {"agentcore_patches": None}])
def test_a_server_that_says_nothing_may_be_anything(info: Any) -> None:
    notes, missing = told(**info)
    assert "does not tell of patches" in notes and "`agentcore-patch status`" in notes
    assert missing == {}


def test_the_server_in_rust_is_told() -> None:
    notes, missing = told(frontend="rust")
    assert "start it without SGLANG_RUST_SERVER" in notes
    assert missing == {}
