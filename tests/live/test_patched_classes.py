"""Run the tests of SGLang's patched classes in the interpreter that has SGLang."""

from __future__ import annotations

from types import ModuleType

import pytest

from tests.live import in_ranks, in_sglang, in_templates, in_tokenizer_manager
from tests.live.conftest import PassesInSGLang


@pytest.mark.parametrize(
    ("module", "name"),
    [
        pytest.param(module, name, id=f"{module.__name__}.{name}")
        for module in (in_ranks, in_sglang, in_templates, in_tokenizer_manager)
        for name in in_sglang.tests_in(vars(module))
    ],
)
def test_in_sglang(
    passes_in_sglang: PassesInSGLang, module: ModuleType, name: str
) -> None:
    passes_in_sglang(module, name)
