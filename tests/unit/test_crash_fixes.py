"""Guards against crashes of SGLang that change no token."""

from __future__ import annotations

import re
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from agentcore_patches.landing import release as facts
from agentcore_patches.landing.crash_fixes import guards, memory
from agentcore_patches.landing.scheduler import requests
from agentcore_patches.patches import registry
from tests.unit.small_server import VOCAB_SIZE, tokenizer_manager

MANAGER = tokenizer_manager()


def refuse(sampling_params: Any = None, **fields: Any) -> None:
    obj: Any = SimpleNamespace(sampling_params=sampling_params, **fields)
    guards.refuse(MANAGER, obj)


@pytest.mark.parametrize(
    ("params", "fields"),
    [
        (None, {}),
        ({"temperature": 0.5, "repetition_penalty": 0.5}, {}),
        ([{"temperature": None}, {"repetition_penalty": None}], {}),
        ({"min_new_tokens": 4}, {"top_logprobs_num": VOCAB_SIZE}),
        ({"n": 2}, {"bootstrap_room": 1}),
        ({}, {"custom_logit_processor": "x", "top_logprobs_num": [2, None]}),
    ],
)
def test_a_value_that_the_engine_accepts_passes(
    params: Any, fields: dict[str, Any]
) -> None:
    refuse(params, **fields)


@pytest.mark.parametrize(
    ("name", "params", "fields"),
    [
        ("temperature", {"temperature": float("nan")}, {}),
        ("temperature", [{}, {"temperature": float("inf")}], {}),
        ("repetition_penalty", {"repetition_penalty": 0}, {}),
        ("top_logprobs_num", None, {"top_logprobs_num": [2, VOCAB_SIZE + 1]}),
        ("bootstrap_room", {"n": 2}, {"bootstrap_room": [1, 2]}),
    ],
)
def test_a_value_that_crashes_the_engine_is_refused_by_name(
    name: str, params: Any, fields: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match=name):
        refuse(params, **fields)


@pytest.mark.parametrize("is_needed", [False, True])
def test_min_new_tokens_may_need_an_eos_token(
    is_needed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "MIN_TOKENS_NEED_EOS", is_needed)
    monkeypatch.setattr(MANAGER.tokenizer, "eos_token_id", None)
    refused = pytest.raises(ValueError, match="min_new_tokens needs an EOS token")
    with refused if is_needed else nullcontext():
        refuse({"min_new_tokens": 1})


def release(holder: Any, recv_req: Any) -> Any:
    """Act like SGLang, simplified."""
    assert holder.idle, "only when idle."
    holder.offload_tags.update(recv_req.tags)
    assert "broken" not in recv_req.tags
    return "released"


def test_memory_in_use_is_kept_and_the_response_has_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        requests, "build_output", lambda recv_req, **said: SimpleNamespace(**said)
    )
    release_memory = memory.release_memory(release)
    holder = SimpleNamespace(idle=False, offload_tags=set())
    answer = release_memory(holder, SimpleNamespace(tags=["weights"]))
    accepted: Any = SimpleNamespace(refusal=None)
    guards.raise_refusal([accepted])
    with pytest.raises(ValueError, match="Nothing was released: only when idle"):
        guards.raise_refusal([accepted, answer])
    holder.idle = True
    assert release_memory(holder, SimpleNamespace(tags=["weights"])) == "released"
    with pytest.raises(AssertionError):
        release_memory(holder, SimpleNamespace(tags=["broken"]))


def test_each_hook_names_a_public_report() -> None:
    for hook in registry.hooks("crash-fixes"):
        assert re.search(r"\b(issue|PR) \d+", hook.upstream), hook.name
