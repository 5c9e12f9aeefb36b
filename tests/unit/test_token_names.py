"""Tokens of logprobs that are named by their IDs."""

from __future__ import annotations

from types import ModuleType

import pytest

from agentcore_patches.grafts import builtin_token_names, token_names

each_form = pytest.mark.parametrize("names", [token_names, builtin_token_names])


@each_form
def test_tokens_without_text_are_named_by_their_ids(names: ModuleType) -> None:
    assert names._name_tokens_by_id([(-0.5, 7, None), (None, 8, None)]) == [
        (-0.5, 7, "token_id:7"),
        (None, 8, "token_id:8"),
    ]


@each_form
def test_tokens_with_text_keep_it(names: ModuleType) -> None:
    tokens = [(-0.5, 7, ""), (-0.1, 8, "x")]
    assert names._name_tokens_by_id(tokens) is tokens
    assert names._name_tokens_by_id([]) == []
