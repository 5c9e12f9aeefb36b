"""The logprobs of a chat choice as SGLang's Pydantic models write them."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from agentcore_patches.landing import release

pydantic = pytest.importorskip("pydantic")


class Entry(pydantic.BaseModel):  # type: ignore[misc,name-defined]
    token: str
    bytes: list[int]
    logprob: float


class TopEntry(Entry):
    top_logprobs: list[Entry]


class Logprobs(pydantic.BaseModel):  # type: ignore[misc,name-defined]
    content: list[TopEntry]


def chat_logprobs(
    meta_info: dict[str, Any], bytes_of: Sequence[list[int] | None] | None = None
) -> Logprobs:
    """Build logprobs from the engine's lists; `bytes_of` maps IDs to bytes."""

    def entry(row: Any) -> dict[str, Any]:
        logprob, token_id, text = row
        raw = bytes_of[token_id] if bytes_of else None
        return {
            "token": text,
            "bytes": raw or list(text.encode()),
            "logprob": float(logprob),
        }

    def top_entries(rows: Any) -> list[dict[str, Any]]:
        # Of several tokens with the same text, SGLang kept one.
        by_text = {} if release.BYTES_OF_ID else {row[2]: row for row in rows or ()}
        return [entry(row) for row in by_text.values() or rows or ()]

    rows = meta_info["output_token_logprobs"]
    tops = meta_info.get("output_top_logprobs") or [None] * len(rows)
    content = [
        {**entry(row), "top_logprobs": top_entries(tops[index])}
        for index, row in enumerate(rows)
    ]
    made: Logprobs = Logprobs.model_validate({"content": content})
    return made


class Serving:
    """Makes logprobs as SGLang does, or a fork that adds a suffix to each token.

    Attributes:
        n_models: number of tokens converted to models.
    """

    tokenizer_manager = SimpleNamespace(tokenizer=None)

    def __init__(self, suffix: str = "") -> None:
        self.suffix = suffix
        self.n_models = 0

    def _process_response_logprobs(self, ret_item: dict[str, Any]) -> Logprobs:
        made = chat_logprobs(ret_item["meta_info"])
        for entry in made.content:
            self.n_models += 1
            entry.token += self.suffix
        return made
