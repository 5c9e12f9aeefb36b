"""Parse and try the examples of each kind of edit."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from textwrap import dedent
from typing import TypeAlias

import pytest

from agentcore_patches.edits import Edit, apply_edits
from agentcore_patches.errors import SourceConflict

FILE = "srt/module.py"

Examples: TypeAlias = Mapping[Edit, str]
Words: TypeAlias = Mapping[Edit, str]


@dataclass(frozen=True)
class Example:
    """A source before and after an edit, or the reason for a refusal."""

    edit: Edit
    name: str
    before: str
    after: str
    refusal: str


def examples(table: Examples) -> Iterator[Example]:
    """Return the examples of a table, which has one text with many examples per edit.

    An example is a line with its name and the lines of a source, indented by two. Lines
    marked `-` exist only before the edit, lines marked `+` only after it. Lines marked
    `!` are the reason of a refusal. Without any mark, the edit changes nothing.
    """
    for edit, text in table.items():
        for part in re.split(r"(?m)^(?=[^-+! \n])", dedent(text).strip())[1:]:
            name, *lines = part.rstrip().split("\n")
            refusal = [line[2:] for line in lines if line.startswith("!")]
            lines = [line for line in lines if not line.startswith("!")]
            before, after = (
                "".join(f"{line[2:]}\n" for line in lines if line[:1] != other)
                for other in "+-"
            )
            yield Example(edit, name, before, after, " ".join(refusal))


def rewritten(source: str, *edits: Edit) -> str:
    """Return the source after the edits."""
    return apply_edits(source.encode(), edits)[0].decode()


def assert_bytes(edit: Edit, before: bytes, after: bytes) -> None:
    """Check that the edit turns `before` into `after`, and leaves `after` unchanged."""
    edit.check()
    assert apply_edits(before, [edit]) == (after, (before != after,))
    assert apply_edits(after, [edit]) == (after, (False,))
    compile(after, FILE, "exec")


def assert_rewrites(edit: Edit, before: str, after: str) -> None:
    """Check the edit with both kinds of line ends, and without a final one."""
    texts = dedent(before), dedent(after)
    assert_bytes(edit, *(text.encode() for text in texts))
    crlf = [text.replace("\n", "\r\n").encode() for text in texts]
    assert crlf[0].count(b"\r\n") == texts[0].count("\n") > 0
    assert_bytes(edit, *crlf)
    assert_bytes(edit, *(text.rstrip().encode() for text in texts))


def assert_refused(edit: Edit, source: bytes | None, reason: str) -> None:
    """Check that the refusal has the file, scope, description, name and reason."""
    with pytest.raises(SourceConflict) as refused:
        apply_edits(source, [edit])
    name = f" ({edit.name})" if edit.name else ""
    assert str(refused.value) == (
        f"{edit.file}: in {edit.where}, cannot place {edit.describe()}{name}: {reason}"
    )
