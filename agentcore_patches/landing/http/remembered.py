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
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

HEAD_PARTS = ("model", "cache_salt", "system", "tools", "template")
"""Parts of a conversation's identity besides client and messages, in their order."""

UNKNOWN = "unknown"
"""Name of the parts around the messages: the client, and the end of the messages."""

# Measured sizes of the objects that CPython allocates.
_ENTRY_BYTES = 220
_PART_BYTES = 170

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
    """

    token_ids: array[int]
    written: bytes


class _Node:
    """A part of remembered conversations.

    Attributes:
        before: digest of the part before it.
        n_used: number of conversations that end with it, and of parts that follow it.
    """

    __slots__ = ("before", "n_used")

    def __init__(self, before: bytes):
        self.before = before
        self.n_used = 0


class Memory:
    """Token IDs by conversation; the least recently used are evicted first."""

    def __init__(self, max_bytes: int):
        self.max_bytes = max_bytes
        self.n_bytes = 0
        self._entries: OrderedDict[bytes, Past] = OrderedDict()
        self._nodes: dict[bytes, _Node] = {}
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
        made = Past(array("i", token_ids), conversation.written)
        parts = conversation.parts
        key = parts[-1].digest
        n_bytes = _size(made) + _PART_BYTES * len(parts)
        if n_bytes > self.max_bytes:
            return
        with self._lock:
            found = self._entries.get(key)
            if found is not None:
                self._entries.move_to_end(key)
                if found.token_ids != made.token_ids:
                    made = Past(array("i"), found.written)
                    self.n_bytes -= _size(found) - _size(made)
                    self._entries[key] = made
                return
            self._entries[key] = made
            self.n_bytes += _size(made)
            self._add(parts)
            while self.n_bytes > self.max_bytes:
                self._evict()

    def explain(self, conversation: Conversation) -> str:
        """Return why a turn, up to its last assistant message, is not found."""
        with self._lock:
            missing = (
                part.name
                for part in conversation.parts
                if part.digest not in self._nodes
            )
            return next(missing, "ambiguous")

    def _add(self, parts: list[Part]) -> None:
        """Count a new conversation at its last part; add the parts that are missing."""
        for position in range(len(parts) - 1, -1, -1):
            node = self._nodes.get(parts[position].digest)
            if node is not None:
                node.n_used += 1
                return
            before = parts[position - 1].digest if position else START
            node = self._nodes[parts[position].digest] = _Node(before)
            node.n_used = 1
            self.n_bytes += _PART_BYTES

    def _evict(self) -> None:
        """Forget the oldest conversation, and the parts that no other one has."""
        key, found = self._entries.popitem(last=False)
        self.n_bytes -= _size(found)
        while (node := self._nodes.get(key)) is not None:
            node.n_used -= 1
            if node.n_used:
                return
            del self._nodes[key]
            self.n_bytes -= _PART_BYTES
            key = node.before


def digest(value: Any, before: bytes = b"") -> bytes:
    """Digest a JSON value, chained to the digest `before`."""
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(before + text.encode("utf-8", "surrogatepass")).digest()


def _size(past: Past) -> int:
    return _ENTRY_BYTES + len(past.token_ids) * past.token_ids.itemsize
