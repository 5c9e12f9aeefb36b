"""Decode token IDs: by a tokenizer, or by the server's /detokenize, in either form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from . import client
from .audit.tokens import Tokens
from .client import BrokenAnswer, ClientError
from .profiles import at

Decoder: TypeAlias = Callable[[Sequence[Sequence[int]], bool], list[str]]
"""Decodes sequences; the flag tells whether special tokens are kept."""


def by_tokenizer(tokens: Tokens) -> Decoder:
    return lambda sequences, special: [
        tokens.decode(ids, special=special) for ids in sequences
    ]


def find_decoder(base_url: str, model: str, api_key: str | None) -> Decoder | None:
    """Ask once which form /detokenize takes; None if there is no such endpoint."""

    def ask(key: str, **body: Any) -> Any:
        url, body = f"{base_url}/detokenize", {"model": model, **body}
        with client.post(url, body, api_key=api_key) as response:
            found = at(response.json(), key)
        if found is None:
            raise BrokenAnswer(f"{url}: the answer has no {key}.")
        return found

    def sglang(sequences: Sequence[Sequence[int]], special: bool) -> list[str]:
        tokens = [list(ids) for ids in sequences]
        return list(ask("text", tokens=tokens, skip_special_tokens=not special))

    def vllm(sequences: Sequence[Sequence[int]], special: bool) -> list[str]:
        # It keeps special tokens.
        return [str(ask("prompt", tokens=list(ids))) for ids in sequences]

    for decoder in (sglang, vllm):
        try:
            decoder([[5]], True)
        except (ClientError, ValueError):
            continue
        return decoder
    return None
