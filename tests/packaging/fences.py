"""Parse a document: fenced blocks, commands in them, links and anchors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from markdown_it import MarkdownIt


@dataclass(frozen=True)
class Block:
    """A fenced block; `info` is its language and the words after it."""

    row: int
    info: str
    text: str

    @property
    def language(self) -> str:
        return self.info.split()[0] if self.info else ""

    @property
    def words(self) -> dict[str, str]:
        """The words after the language; `exit=4` is {"exit": "4"}, `answer` has ""."""
        pairs = (word.partition("=") for word in self.info.split()[1:])
        return {name: value for name, _, value in pairs}


@dataclass(frozen=True)
class Command:
    """One command of a console block, and its shown output."""

    script: str
    shown: str


def blocks(markdown: str, row: int = 1) -> Iterator[Block]:
    """Return the blocks of a document; an indented one has no language.

    Blocks in an HTML comment count, too: they hold set-up that readers do not see.
    `row` is the row of the first line.
    """
    for token in MarkdownIt().parse(markdown):
        if token.map is None:
            continue
        if token.type in ("fence", "code_block"):
            yield Block(row + token.map[0], token.info.strip(), token.content)
        elif token.type == "html_block" and token.content.startswith("<!--"):
            inside = token.content.removeprefix("<!--").partition("-->")[0]
            yield from blocks(inside, row + token.map[0])


def commands(block: str) -> Iterator[Command]:
    """Return the commands of a console block; a backslash continues one."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        end = 1
        while lines[end - 1].endswith("\\") and end < len(lines):
            end += 1
        yield Command("\n".join(lines[:end]), "\n".join(lines[end:]))


def links_of(markdown: str) -> list[str]:
    """Return the targets of its links and images."""
    inline = [t for t in MarkdownIt().parse(markdown) if t.type == "inline"]
    inside = [child for token in inline for child in token.children or ()]
    found = [token.attrGet("href") or token.attrGet("src") for token in inside]
    return [str(link) for link in found if link]


def anchors_of(markdown: str) -> list[str]:
    """Return the anchors of its headings, as GitHub makes them."""
    tokens = MarkdownIt().parse(markdown)
    heads = [
        after.content
        for token, after in pairwise(tokens)
        if token.type == "heading_open"
    ]
    return [re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads]
