"""Token IDs of the conversations that a server answered.

Messages form a tree: the parent of a message is the message before it. When a turn is
not found, it is compared with the remembered conversation that shares most messages
with it. For this comparison, each message keeps a short hash of every part.
Evicted conversations stay in the tree, up to a sixteenth of the memory.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import threading
from array import array
from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

logger = logging.getLogger(__name__)

HEAD_PARTS = ("model", "cache_salt", "system", "tools", "template")
"""Parts of a conversation's identity besides its messages, in comparison order."""

PART_BYTES = 8
"""Number of bytes that `Head.parts` keeps of each part's digest."""

# Measured sizes of the objects that CPython allocates.
_ENTRY_BYTES = 400
_NODE_BYTES = 400
_HEAD_BYTES = 300

# Evicted conversations may take this fraction of the memory: one sixteenth.
_EVICTED_SHARE = 16

# Highest number of conversations with which a missed turn is compared.
_COMPARED = 64

_ANSWER_PARTS = ("role", "content", "tool_calls")
_MESSAGE_PARTS = ("role", "content", "name", "tool_call_id", "tools")
_HASH_BYTES = 4

_START = bytes(32)


class Head(NamedTuple):
    """Identity of a conversation besides its messages.

    Attributes:
        digest: digest of all parts.
        parts: the first bytes of the digest of each of `HEAD_PARTS`.
    """

    digest: bytes
    parts: bytes

    @classmethod
    def of(cls, parts: Sequence[Any]) -> Head:
        """Digest the values of `HEAD_PARTS`."""
        digests = [digest(part) for part in parts]
        whole = hashlib.sha256(b"".join(digests)).digest()
        return cls(whole, b"".join(one[:PART_BYTES] for one in digests))


class Link(NamedTuple):
    """A message of a conversation.

    Attributes:
        digest: digest of the message and of all messages before it.
        described: the message's parts, in the order of their names.
        position: index of the message in the request.
    """

    digest: bytes
    described: list[Any]
    position: int


class Conversation(NamedTuple):
    """A conversation: its head and its messages."""

    head: Head
    links: list[Link]

    @property
    def key(self) -> bytes:
        """Digest of the whole conversation."""
        return hashlib.sha256(self.head.digest + self._last_digest).digest()

    @property
    def _last_digest(self) -> bytes:
        return self.links[-1].digest if self.links else _START

    def add(self, described: list[Any], position: int) -> None:
        """Append a message."""
        before = self._last_digest
        self.links.append(Link(digest(described, before), described, position))

    def with_answer(self, described: list[Any]) -> Conversation:
        """Return the conversation with one more message."""
        longer = Conversation(self.head, [*self.links])
        longer.add(described, len(self.links))
        return longer


class _Entry:
    """Token IDs of one conversation, None after eviction."""

    __slots__ = ("head", "key", "node", "token_ids")

    def __init__(self, key: bytes, node: _Node, head: bytes):
        self.key = key
        self.node = node
        self.head = head
        self.token_ids: array[int] | None = None


class _Node:
    """A message of the tree.

    Attributes:
        parts: a short hash of each part.
        entries: the conversations that end with this message.
        n_live: number of conversations with token IDs that contain this message.
    """

    __slots__ = ("children", "digest", "entries", "n_live", "parent", "parts")

    def __init__(self, digest: bytes, parent: _Node | None, parts: bytes):
        self.digest = digest
        self.parent = parent
        self.parts = parts
        self.children: list[_Node] = []
        self.entries: list[_Entry] = []
        self.n_live = 0


class Memory:
    """Token IDs by conversation; the least recently used are evicted first."""

    def __init__(self, max_bytes: int):
        self.max_bytes = max_bytes
        self.n_bytes = 0
        self.counts: Counter[str] = Counter()
        self._n_found = 0
        # Bytes used only by evicted conversations.
        self._n_evicted_bytes = 0
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()
        self._evicted: OrderedDict[bytes, _Entry] = OrderedDict()
        self._root = _Node(_START, None, b"")
        self._nodes: dict[bytes, _Node] = {}
        self._heads: dict[bytes, list[_Entry]] = {}
        # From 0.5.22 on, SGLang converts requests in threads.
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, conversation: Conversation) -> list[int] | None:
        """Return the token IDs of a conversation, None if it is not remembered.

        Two answers to the same messages may have the same text but different tokens.
        Then the result is None as well: the client may continue either of them.
        """
        key = conversation.key
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or not entry.token_ids:
                return None
            self._entries.move_to_end(key)
            return entry.token_ids.tolist()

    def put(self, conversation: Conversation, token_ids: list[int]) -> None:
        """Remember a conversation."""
        kept = array("i", token_ids)
        key = conversation.key
        n_nodes = len(conversation.links)
        most = _size(kept) + _HEAD_BYTES + _ENTRY_BYTES + _NODE_BYTES * n_nodes
        if most > self.max_bytes:
            return
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._entries.move_to_end(key)
                if entry.token_ids != kept:
                    self.n_bytes -= _size(entry.token_ids)
                    entry.token_ids = array("i")
                return
            entry = self._evicted.pop(key, None) or self._add(key, conversation)
            self._n_evicted_bytes -= _ENTRY_BYTES
            self._mark(entry.node, 1)
            entry.token_ids = kept
            self._entries[key] = entry
            self.n_bytes += _size(kept)
            while self.n_bytes > self.max_bytes:
                self._make_room()

    def explain(self, conversation: Conversation) -> str:
        """Return the first part in which a turn differs from the nearest conversation.

        Args:
            conversation: the missed turn, up to its last assistant message.
        """
        with self._lock:
            key = conversation.key
            if key in self._entries:
                return "ambiguous"
            if key in self._evicted:
                return "evicted"
            return self._find_difference(conversation)

    def count(self, missed: str | None) -> None:
        """Count a turn, found if `missed` is None; log the counts now and then."""
        with self._lock:
            if missed is None:
                self._n_found += 1
                return
            self.counts[re.sub(r" \d+", "", missed)] += 1
            n_missed = self.counts.total()
            counts, n_found = self.counts.most_common(), self._n_found
        if n_missed & (n_missed - 1) == 0:
            logger.info(
                "Conversation memory: %d turns found, %d not found (%s); "
                "metadata.prefix.missed of an answer says why",
                n_found,
                n_missed,
                ", ".join(f"{reason}: {count}" for reason, count in counts),
            )

    def _find_difference(self, conversation: Conversation) -> str:
        head, links = conversation
        node, n_common = self._root, 0
        for position in range(len(links) - 1, -1, -1):
            found = self._nodes.get(links[position].digest)
            if found is not None:
                node, n_common = found, position + 1
                break
        while node.parent is not None:
            following = links[n_common] if n_common < len(links) else None
            in_head, in_message = min(
                islice(_differences(node, head.parts, following), _COMPARED),
                key=lambda found: (len(found[0]), len(found[1])),
                default=([], []),
            )
            if in_head:
                return in_head[0]
            if following is not None and in_message:
                return f"message {following.position}: {in_message[0]}"
            if node.entries:
                return "unknown"
            # Clients sent this history, but no remembered answer ends it.
            node, n_common = node.parent, n_common - 1
        in_message = self._differing_first(head.parts, links[0]) if links else []
        if in_message:
            return f"message {links[0].position}: {in_message[0]}"
        return "unknown"

    def _add(self, key: bytes, conversation: Conversation) -> _Entry:
        """Add an entry without token IDs, and the messages that the tree lacks."""
        node = self._root
        for link in conversation.links:
            child = self._nodes.get(link.digest)
            if child is None:
                child = _Node(link.digest, node, _hashes(link.described))
                self._nodes[link.digest] = child
                node.children.append(child)
                self._grow(_NODE_BYTES)
            node = child
        head = conversation.head.parts
        same = self._heads.setdefault(head, [])
        if not same:
            self.n_bytes += _HEAD_BYTES
        entry = _Entry(key, node, same[0].head if same else head)
        same.append(entry)
        node.entries.append(entry)
        self._grow(_ENTRY_BYTES)
        return entry

    def _differing_first(self, head: bytes, first: Link) -> list[str]:
        """Compare a first message with that of the last entry with the same head."""
        entries = self._heads.get(head)
        if not entries:
            return []
        node = entries[-1].node
        while node.parent is not None and node.parent is not self._root:
            node = node.parent
        return _differing_message(node.parts, first)

    def _make_room(self) -> None:
        """Evict the oldest token IDs, or forget the oldest evicted conversation."""
        share = self.max_bytes // _EVICTED_SHARE
        if self._evicted and (self._n_evicted_bytes > share or len(self._entries) <= 1):
            self._forget(self._evicted.popitem(last=False)[1])
            return
        key, entry = self._entries.popitem(last=False)
        self.n_bytes -= _size(entry.token_ids)
        entry.token_ids = None
        self._evicted[key] = entry
        self._n_evicted_bytes += _ENTRY_BYTES
        self._mark(entry.node, -1)

    def _mark(self, node: _Node | None, change: int) -> None:
        """Add `change` to the live count of a message and of those before it."""
        while node is not None and node is not self._root:
            if node.n_live == 0:
                self._n_evicted_bytes -= _NODE_BYTES
            node.n_live += change
            if node.n_live == 0:
                self._n_evicted_bytes += _NODE_BYTES
            node = node.parent

    def _forget(self, entry: _Entry) -> None:
        """Remove an evicted conversation, and the messages that no other one has."""
        node = entry.node
        node.entries.remove(entry)
        same = self._heads[entry.head]
        same.remove(entry)
        if not same:
            del self._heads[entry.head]
            self.n_bytes -= _HEAD_BYTES
        self._grow(-_ENTRY_BYTES)
        while node.parent is not None and not node.entries and not node.children:
            node.parent.children.remove(node)
            del self._nodes[node.digest]
            self._grow(-_NODE_BYTES)
            node = node.parent

    def _grow(self, n_bytes: int) -> None:
        """Count bytes that belong to no conversation with token IDs."""
        self.n_bytes += n_bytes
        self._n_evicted_bytes += n_bytes


def digest(described: Any, before: bytes = b"") -> bytes:
    """Digest a JSON value, chained to the digest `before`."""
    text = json.dumps(described, sort_keys=True, default=str)
    return hashlib.sha256(before + text.encode("utf-8", "surrogatepass")).digest()


def _size(token_ids: array[int] | None) -> int:
    return 0 if token_ids is None else len(token_ids) * token_ids.itemsize


def _hashes(described: list[Any]) -> bytes:
    """Return a short hash of each part of a message, concatenated."""
    parts = (
        part if isinstance(part, str) else json.dumps(part, sort_keys=True, default=str)
        for part in described
    )
    hashes = (hash(part) % 256**_HASH_BYTES for part in parts)
    return b"".join(one.to_bytes(_HASH_BYTES, "big") for one in hashes)


def _differences(
    node: _Node, head: bytes, following: Link | None
) -> Iterator[tuple[list[str], list[str]]]:
    """Yield how each conversation below a node differs: parts of head, of next message.

    Args:
        node: the last message that the conversations share with a turn.
        following: the turn's next message after `node`, None without one.
    """
    is_alone = True
    for child in reversed(node.children if following is not None else ()):
        assert following is not None
        in_message = _differing_message(child.parts, following)
        if not in_message:
            # The same message: this is the turn's own history.
            continue
        is_alone = False
        below = child
        while not below.entries:
            below = below.children[-1]
        for entry in reversed(below.entries):
            yield _differing(HEAD_PARTS, entry.head, head), in_message
    if is_alone:
        for entry in reversed(node.entries):
            yield _differing(HEAD_PARTS, entry.head, head), []


def _differing_message(parts: bytes, other: Link) -> list[str]:
    names = _ANSWER_PARTS if other.described[0] == "assistant" else _MESSAGE_PARTS
    found = _differing(names, parts, _hashes(other.described))
    return ["role"] if "role" in found else found


def _differing(names: Sequence[str], one: bytes, other: bytes) -> list[str]:
    """Return the names of the parts whose hashes differ."""
    size = len(other) // len(names)
    return [
        name
        for position, name in enumerate(names)
        if one[position * size :][:size] != other[position * size :][:size]
    ]
