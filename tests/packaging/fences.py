"""Parse a document: its fenced blocks, and the commands in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from markdown_it import MarkdownIt


@dataclass(frozen=True)
class Block:
    """A fenced block."""

    row: int
    language: str
    text: str


def blocks(markdown: str, row: int = 1) -> Iterator[Block]:
    """Return the blocks of a document; an indented one has no language.

    Blocks in an HTML comment count, too: they hold set-up that readers do not see.
    `row` is the row of the first line.
    """
    for token in MarkdownIt().parse(markdown):
        if token.type in ("fence", "code_block"):
            yield Block(row + (token.map or [0])[0], token.info, token.content)
        elif token.type == "html_block" and token.content.startswith("<!--"):
            inside = token.content.removeprefix("<!--").partition("-->")[0]
            yield from blocks(inside, row + (token.map or [0])[0])


def commands(block: str) -> Iterator[tuple[str, str]]:
    """Return each command of a console block, and the output shown below it."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        # A backslash continues a command.
        command = re.match(r"(?:.*\\\n)*.*", part)
        assert command
        yield command[0], part[command.end() :].strip("\n")
