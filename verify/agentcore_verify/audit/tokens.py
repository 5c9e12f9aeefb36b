"""Text and token IDs, by the tokenizer of the model."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentcore_patches.errors import UsageError

FILE = "tokenizer.json"

BROKEN = "\ufffd"
"""Replaces bytes that are not a whole character."""


class Tokens:
    """Encodes and decodes like the model's tokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        added = tokenizer.get_added_tokens_decoder()
        self._special = {
            number: str(token.content)
            for number, token in added.items()
            if token.special
        }
        self.special_texts = frozenset(self._special.values())

    @staticmethod
    def load(path: Path) -> Tokens:
        """Load the tokenizer of a file, or of a model's folder, or raise UsageError."""
        file = path / FILE if path.is_dir() else path
        if not file.is_file():
            raise UsageError(
                f"--tokenizer: there is no {file}.",
                hint="`AutoTokenizer.from_pretrained(MODEL).save_pretrained(DIR)` "
                "writes one.",
            )
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise UsageError(
                f"--tokenizer needs the module tokenizers, and {sys.executable} does "
                "not have it.",
                hint="Run `pip install 'agentcore-patches[audit]'`.",
            ) from error
        try:
            return Tokens(Tokenizer.from_file(str(file)))
        except Exception as error:  # the library raises no other class
            raise UsageError(
                f"--tokenizer: cannot load {file}: {error}.",
                hint=f"Give the {FILE} of the served model.",
            ) from error

    def encode(self, text: str) -> list[int]:
        encoded = self._tokenizer.encode(text, add_special_tokens=False)
        return list(encoded.ids)

    def decode(self, ids: Sequence[int], *, special: bool = True) -> str:
        return str(self._tokenizer.decode([*ids], skip_special_tokens=not special))

    def decode_all(
        self, sequences: Sequence[Sequence[int]], special: bool
    ) -> list[str]:
        return [self.decode(ids, special=special) for ids in sequences]

    def decode_each(self, ids: Sequence[int]) -> list[str]:
        return [self.decode([one]) for one in ids]

    def is_special(self, number: int) -> bool:
        return number in self._special

    def without_end(self, ids: Sequence[int]) -> list[int]:
        end = len(ids)
        while end and ids[end - 1] in self._special:
            end -= 1
        return [*ids[:end]]
