"""Token IDs of the conversations that a server answered.

A conversation is a chain of parts: its client, its messages, and what else identifies
it. The digest of a part also covers all parts before it. A turn that is not found is
reported with its first part that is in no remembered conversation.
"""

from __future__ import annotations

import hashlib
import json
import threading
from array import array
from collections import Counter, OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

HEAD_PARTS = ("model", "cache_salt", "system", "tools", "template")
"""Parts of a conversation's identity besides client and messages, in their order."""

UNKNOWN = "unknown"
"""Name of the parts around the messages: the client, and the end of the messages."""

# Measured sizes of the objects that CPython allocates.
_ENTRY_BYTES = 260
_PART_BYTES = 120

START = bytes(32)
"""Digest of nothing."""


class Part(NamedTuple):
    """A part of a conversation.

    Attributes:
        digest: digest of the part and of all parts before it.
        name: its name in `metadata.prefix.missed`.
    """

    digest: bytes
    name: str


class Conversation(NamedTuple):
    """A conversation.

    Attributes:
        messages: the client and the messages.
        head: digests of the values of `HEAD_PARTS`.
        sent: a digest of the first 0, 1, 2, ... assistant messages exactly as they were
            sent, with reasoning and IDs, which do not identify a conversation.
        written: the one of `sent` with the assistant messages that the template wrote
            into the prompt; the others come from memory.
    """

    messages: list[Part]
    head: list[bytes]
    sent: Sequence[bytes] = (START,)
    written: bytes = START

    @classmethod
    def of(cls, client: str | None, head: Sequence[Any]) -> Conversation:
        """Start a conversation of a client; `head` has the values of `HEAD_PARTS`."""
        return cls([Part(digest(client), UNKNOWN)], [digest(value) for value in head])

    @property
    def parts(self) -> list[Part]:
        """All that identifies it; the last part's digest covers the conversation."""
        parts = [*self.messages]
        names = (UNKNOWN, *HEAD_PARTS)
        for name, value in zip(names, (START, *self.head), strict=True):
            whole = hashlib.sha256(parts[-1].digest + value).digest()
            parts.append(Part(whole, name))
        return parts

    def add(self, name: str, described: list[Any]) -> None:
        """Append a message."""
        before = self.messages[-1].digest
        self.messages.append(Part(digest(described, before), name))

    def with_answer(self, described: list[Any]) -> Conversation:
        """Return the conversation with the assistant's answer."""
        longer = self._replace(messages=[*self.messages])
        longer.add("answer", described)
        return longer


class Past(NamedTuple):
    """Token IDs of a conversation.

    Attributes:
        token_ids: empty if the same conversation has had different ones.
        written: as in `Conversation`.
        digests: of the conversation's parts, joined to save memory.
    """

    token_ids: array[int]
    written: bytes
    digests: bytes


class Memory:
    """Token IDs by conversation; the least recently used are evicted first."""

    def __init__(self, max_bytes: int):
        self.max_bytes = max_bytes
        self.n_bytes = 0
        self._entries: OrderedDict[bytes, Past] = OrderedDict()
        # Number of remembered conversations by a part's digest.
        self._n_with: Counter[bytes] = Counter()
        # From 0.5.22 on, SGLang converts requests in threads.
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, conversation: Conversation) -> Past | None:
        """Return the tokens of a conversation, None if it is not remembered.

        Two answers to the same messages may have the same text but different tokens.
        Then the result is None as well: the client may continue either of them. So it
        is if the template wrote other assistant messages into the prompt.
        """
        key = conversation.parts[-1].digest
        with self._lock:
            found = self._entries.get(key)
            if not (found and found.token_ids and found.written in conversation.sent):
                return None
            self._entries.move_to_end(key)
            return found

    def put(self, conversation: Conversation, token_ids: list[int]) -> None:
        """Remember a conversation."""
        digests = [part.digest for part in conversation.parts]
        key = digests[-1]
        made = Past(array("i", token_ids), conversation.written, b"".join(digests))
        if _size(made) + _PART_BYTES * len(digests) > self.max_bytes:
            return
        with self._lock:
            found = self._entries.get(key)
            if found is not None:
                self._entries.move_to_end(key)
                if found.token_ids != made.token_ids:
                    made = found._replace(token_ids=array("i"))
                    self.n_bytes -= _size(found) - _size(made)
                    self._entries[key] = made
                return
            self._entries[key] = made
            self.n_bytes += _size(made) - _PART_BYTES * len(self._n_with)
            self._n_with.update(digests)
            self.n_bytes += _PART_BYTES * len(self._n_with)
            while self.n_bytes > self.max_bytes:
                self._evict()

    def explain(self, conversation: Conversation) -> str:
        """Return why a turn, up to its last assistant message, is not found."""
        with self._lock:
            missing = (
                part.name
                for part in conversation.parts
                if part.digest not in self._n_with
            )
            return next(missing, "ambiguous")

    def _evict(self) -> None:
        """Forget the oldest conversation, and the parts that no other one has."""
        _, found = self._entries.popitem(last=False)
        self.n_bytes -= _size(found)
        for start in range(0, len(found.digests), len(START)):
            part = found.digests[start : start + len(START)]
            self._n_with[part] -= 1
            if not self._n_with[part]:
                del self._n_with[part]
                self.n_bytes -= _PART_BYTES


def digest(value: Any, before: bytes = b"") -> bytes:
    """Digest a JSON value, chained to the digest `before`."""
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(before + text.encode("utf-8", "surrogatepass")).digest()


def _size(past: Past) -> int:
    n_bytes = len(past.token_ids) * past.token_ids.itemsize
    return _ENTRY_BYTES + n_bytes + len(past.digests)
