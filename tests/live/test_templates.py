"""Turns by the chat templates of model families, in the interpreter that has SGLang."""

from __future__ import annotations

import pytest

from tests.helpers.chat_templates import FAMILIES
from tests.live import in_templates
from tests.live.conftest import RunInSGLang


@pytest.fixture(scope="module")
def outcomes(run_in_sglang: RunInSGLang) -> dict[str, str | None]:
    """The error, or None, of each test of `in_templates` and of each family."""
    return run_in_sglang(in_templates)


@pytest.mark.parametrize(
    "name",
    [
        *(name for name in vars(in_templates) if name.startswith("test_")),
        *map(str, FAMILIES),
    ],
)
def test_by_template(outcomes: dict[str, str | None], name: str) -> None:
    assert outcomes[name] is None, outcomes[name]
