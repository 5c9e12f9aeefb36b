"""Lands in `entrypoints/openai/utils.py`, for the patch `token-ids`."""

from __future__ import annotations

from typing import Any


def _name_tokens_by_id(token_logprobs: list[Any]) -> list[Any]:
    """Logprobs of the engine, `(logprob, token ID, text)`, each with a text.

    A token without text is named by its ID, "token_id:N", as vLLM does it.
    """
    if not token_logprobs or token_logprobs[0][2] is not None:
        return token_logprobs
    return [
        (logprob, token_id, f"token_id:{token_id}")
        for logprob, token_id, _ in token_logprobs
    ]
