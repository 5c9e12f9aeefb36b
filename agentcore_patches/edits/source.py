"""Apply edits to a file."""

from __future__ import annotations

import io
import tokenize
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from agentcore_patches.edits.base import Edit, SourceEdit
from agentcore_patches.edits.kinds import Land
from agentcore_patches.edits.matching import CannotPlace
from agentcore_patches.edits.place import SourceFile
from agentcore_patches.errors import SourceConflict


def apply_edits(
    source: bytes | None, edits: Sequence[Edit]
) -> tuple[bytes, tuple[bool, ...]]:
    """Return the new source, and for each edit whether it changed anything.

    `source` is None if the file is absent: `Land` creates it.

    Raises:
        SourceConflict: the source is absent or cannot be parsed, or a place is missing,
            found too often or changed.
    """
    if isinstance(landing := edits[0], Land):
        with _placing(landing):
            landed = landing.land(source)
        return landed or source or b"", (landed is not None,)
    if source is None:
        raise SourceConflict(f"{edits[0].file}: there is no such file")
    text, encoding = decode(source, edits[0].file)
    file = SourceFile(text, edits[0].file)
    made = []
    for edit in edits:
        assert isinstance(edit, SourceEdit)
        with _placing(edit):
            made.append(edit.apply(file))
    return "".join(file.lines).encode(encoding), tuple(made)


def decode(source: bytes, file: str) -> tuple[str, str]:
    """Return the source of a file and its encoding, or raise SourceConflict."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
        return source.decode(encoding), encoding
    except (SyntaxError, UnicodeDecodeError, LookupError) as error:
        raise SourceConflict(f"{file} cannot be decoded: {error}") from error


@contextmanager
def _placing(edit: Edit) -> Iterator[None]:
    """Turn `CannotPlace` into an error that names file, scope and edit."""
    try:
        yield
    except CannotPlace as reason:
        name = f" ({edit.name})" if edit.name else ""
        raise SourceConflict(
            f"{edit.file}: in {edit.where}, cannot place {edit.describe()}{name}: "
            f"{reason}"
        ) from None
