"""Guards against crashes of SGLang that change no token."""

from __future__ import annotations

import re
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from agentcore_patches.landing import release as facts
from agentcore_patches.landing.crash_fixes import guards
from agentcore_patches.patches import registry
from tests.unit.small_server import VOCAB_SIZE, tokenizer_manager

MANAGER = tokenizer_manager()


@pytest.mark.parametrize(
    ("name", "params", "fields"),
    [
        # Values that the engine accepts.
        (None, None, {}),
        (None, {"temperature": 0.5, "repetition_penalty": 0.5}, {}),
        (None, [{"temperature": None}, {"repetition_penalty": None}], {}),
        (None, {"min_new_tokens": 4}, {"top_logprobs_num": VOCAB_SIZE}),
        (None, {"n": 2}, {"bootstrap_room": 1}),
        (None, {}, {"custom_logit_processor": "x", "top_logprobs_num": [2, None]}),
        ("temperature", {"temperature": float("nan")}, {}),
        ("temperature", [{}, {"temperature": float("inf")}], {}),
        ("repetition_penalty", {"repetition_penalty": 0}, {}),
        ("top_logprobs_num", None, {"top_logprobs_num": [2, VOCAB_SIZE + 1]}),
        ("bootstrap_room", {"n": 2}, {"bootstrap_room": [1, 2]}),
    ],
)
def test_a_value_that_crashes_the_engine_is_refused_by_name(
    name: str | None, params: Any, fields: dict[str, Any]
) -> None:
    obj: Any = SimpleNamespace(sampling_params=params, **fields)
    with pytest.raises(ValueError, match=name) if name else nullcontext():
        guards.refuse(MANAGER, obj)


@pytest.mark.parametrize("is_needed", [False, True])
def test_min_new_tokens_may_need_an_eos_token(
    is_needed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "MIN_TOKENS_NEED_EOS", is_needed)
    monkeypatch.setattr(MANAGER.tokenizer, "eos_token_id", None)
    refused = pytest.raises(ValueError, match="min_new_tokens needs an EOS token")
    with refused if is_needed else nullcontext():
        obj: Any = SimpleNamespace(sampling_params={"min_new_tokens": 1})
        guards.refuse(MANAGER, obj)


def test_each_hook_names_a_public_report() -> None:
    for hook in registry.hooks("crash-fixes"):
        assert re.search(r"\b(issue|PR) \d+", hook.upstream), hook.name
