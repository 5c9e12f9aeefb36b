"""The patched module's own classes, in the interpreter that has SGLang."""

from __future__ import annotations

import pytest

from tests.live import in_ranks, in_sglang, in_tokenizer_manager
from tests.live.conftest import RunInSGLang

MODULES = (in_ranks, in_sglang, in_tokenizer_manager)


@pytest.fixture(scope="session")
def outcomes(run_in_sglang: RunInSGLang) -> dict[str, str | None]:
    """The error, or None, of each test in `MODULES`, after the module's name."""
    return {
        f"{module.__name__}.{name}": outcome
        for module in MODULES
        for name, outcome in run_in_sglang(module).items()
    }


@pytest.mark.parametrize(
    "name",
    [
        f"{module.__name__}.{name}"
        for module in MODULES
        for name in vars(module)
        if name.startswith("test_")
    ],
)
def test_in_sglang(outcomes: dict[str, str | None], name: str) -> None:
    assert outcomes[name] is None, outcomes[name]
