"""How the tables of each kind of edit are tried: before and after, as plain text."""

from __future__ import annotations

import io
import tokenize
from textwrap import dedent

import pytest

from agentcore_patches.edits import Edit, apply_edits
from agentcore_patches.errors import SourceConflict

FILE = "srt/module.py"


def rewritten(source: str, *edits: Edit) -> str:
    """The source with the edits made."""
    return apply_edits(source.encode(), edits)[0].decode()


def assert_bytes(edit: Edit, before: bytes, after: bytes) -> None:
    """The edit turns one into the other, and leaves the other as it is."""
    edit.check()
    assert apply_edits(before, [edit]) == (after, (True,))
    assert apply_edits(after, [edit]) == (after, (False,))
    compile(after, FILE, "exec")


def assert_rewrites(edit: Edit, before: str, after: str) -> None:
    """The same, with both kinds of line ends, and without the last one."""
    texts = dedent(before), dedent(after)
    assert_bytes(edit, *(text.encode() for text in texts))
    crlf = [text.replace("\n", "\r\n").encode() for text in texts]
    assert crlf[0].count(b"\r\n") == texts[0].count("\n") > 0
    assert_bytes(edit, *crlf)
    assert_bytes(edit, *(text.rstrip().encode() for text in texts))


def assert_no_op(edit: Edit, source: str) -> None:
    """The edit leaves the source as it is, with both kinds of line ends."""
    edit.check()
    lf = dedent(source).encode()
    crlf = lf.replace(b"\n", b"\r\n")
    assert lf != crlf
    for text in (lf, crlf):
        assert apply_edits(text, [edit]) == (text, (False,))
        compile(text, FILE, "exec")


def assert_conflict(edit: Edit, source: str, reason: str) -> None:
    """The edit is refused, with file, scope, what it does, and the reason."""
    with pytest.raises(SourceConflict) as refused:
        rewritten(dedent(source), edit)
    assert str(refused.value) == (
        f"{FILE}: in `{edit.scope}`, cannot place {edit.describe()}: {reason}"
    )


def comments(source: str) -> list[str]:
    """The comments of a source, in their order."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return [token.string for token in tokens if token.type == tokenize.COMMENT]
