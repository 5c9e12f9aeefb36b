"""One choice of an answer: what the engine returned for it, and what was sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import release

_LOGPROBS = "output_token_logprobs"


class Choice:
    """The engine's output for one choice, and the amount of it that was sent.

    Attributes:
        output_ids: the token IDs so far; the engine may append more than `n_received`.
        lists: lists with an entry for each of these tokens, by the engine's names.
        meta_info: the `meta_info` of the last output.
    """

    __slots__ = (
        "_has_logprobs",
        "_ids_are_new",
        "_joined",
        "_names",
        "index",
        "lists",
        "meta_info",
        "n_received",
        "n_sent",
        "output_ids",
        "prompt_token_ids",
    )

    def __init__(self, index: int, ids_are_new: bool, names: Sequence[str] = ()):
        """
        Args:
            ids_are_new: an output's `output_ids` has only new IDs (--stream-output).
            names: names of the lists in `meta_info` that are sent with the tokens.
        """
        self._ids_are_new = ids_are_new
        self._names = names
        self._has_logprobs = _LOGPROBS in names
        # Before 0.5.11, the lists are cumulative even with --stream-output.
        self._joined = names if ids_are_new and release.LOGPROBS_ARE_NEW else ()
        self.index = index
        self.output_ids: list[int] = []
        self.lists: dict[str, Any] = {}
        self.meta_info: dict[str, Any] = {}
        self.n_received = 0
        self.n_sent = 0
        # The prompt's token IDs, until a line has carried them.
        self.prompt_token_ids: list[int] | None = None

    def push(self, content: dict[str, Any]) -> None:
        """Record an output of the engine."""
        if self._ids_are_new:
            self.output_ids.extend(content["output_ids"])
        else:
            self.output_ids = content["output_ids"]
        self.n_received = len(self.output_ids)
        self.meta_info = content["meta_info"]
        if not self._joined:
            self.lists = self.meta_info
            return
        for name in self._joined:
            if (values := self.meta_info.get(name)) is not None:
                self.lists.setdefault(name, []).extend(values)

    def take(self) -> tuple[list[int], dict[str, Any]]:
        """Return the token IDs that were not sent yet, and their entries of the lists.

        Raises:
            ValueError: the engine returned fewer logprobs than tokens.
        """
        start, end = self.n_sent, self.n_received
        found: dict[str, Any] = {}
        for name in self._names:
            if (values := self.lists.get(name)) is not None:
                # The list may be ahead of the token IDs.
                found[name] = values[start:end]
        if self._has_logprobs:
            n_logprobs = len(found.get(_LOGPROBS, ()))
            if n_logprobs != end - start:
                raise ValueError(
                    f"The engine gave {n_logprobs} logprobs for {end - start} tokens "
                    f"of choice {self.index}, after the first {start}."
                )
        self.n_sent = end
        return self.output_ids[start:end], found
