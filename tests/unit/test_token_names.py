"""Tokens of logprobs that are named by their IDs."""

from __future__ import annotations

from agentcore_patches.grafts.token_names import _name_tokens_by_id


def test_tokens_without_text_are_named_by_their_ids() -> None:
    assert _name_tokens_by_id([(-0.5, 7, None), (None, 8, None)]) == [
        (-0.5, 7, "token_id:7"),
        (None, 8, "token_id:8"),
    ]


def test_tokens_with_text_keep_it() -> None:
    tokens = [(-0.5, 7, ""), (-0.1, 8, "x")]
    assert _name_tokens_by_id(tokens) is tokens
    assert _name_tokens_by_id([]) == []
