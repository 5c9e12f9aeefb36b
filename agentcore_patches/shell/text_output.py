"""The layout of output for people: wrapped sentences, labels, tables, colours."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TextIO

import click

from agentcore_patches.patches.releases import RUST_SERVER
from agentcore_patches.shell.advice import with_target
from agentcore_patches.shell.options import SharedOptions
from agentcore_patches.shell.terminal import (
    has_colours,
    in_lines,
    terminal_width,
)

if TYPE_CHECKING:
    from typing_extensions import Self

    from agentcore_patches.shell.exit_codes import Failure

_LABELS: Mapping[str, Mapping[str, Any]] = {
    "error": {"fg": "red", "bold": True},
    "warning": {"fg": "yellow", "bold": True},
    "hint": {"fg": "cyan", "bold": True},
}
_COLOURS = {
    **dict.fromkeys(("in place", "patched", "restored", "removed"), "green"),
    **dict.fromkeys(("outdated", "changed", "modified", "edited since"), "yellow"),
    **dict.fromkeys(("replaced since", "missing", "failed"), "red"),
}
_COMMAND = re.compile("`[^`\n]+`")
NO_RUST_SERVER = (
    f"{RUST_SERVER} is set: it starts SGLang's Rust server, which does not run the patched "
    "code."
)


@dataclass
class TextOutput:
    """Tables and sentences.

    Lines are wrapped at `width` columns, if it is not None. Commands that are advised get
    the options of `target`, which name the SGLang. Tables have only the unusual rows,
    unless `verbose`. Labels and commands have colours if `colour` is set.
    """

    width: int | None = None
    target: Mapping[str, str] = field(default_factory=dict)
    verbose: bool = False
    colour: bool = False

    @classmethod
    def on(cls, stream: TextIO, asked: SharedOptions) -> Self:
        """Return the output for a stream, with the shared options."""
        return cls(
            terminal_width(stream),
            asked.target,
            asked.detail == "verbose",
            has_colours(stream, asked.color),
        )

    def failure(self, failure: Failure) -> str:
        """The lines `error:` and `hint:`; with -v names between them."""
        first, *more = failure.without_hint().splitlines() or [""]
        lines = [self.labelled("error", first), *map(self.wrapped, more)]
        if self.verbose:
            lines += [f"  {detail}" for detail in failure.details]
        if failure.hint:
            lines.append(self.labelled("hint", failure.hint))
        return "\n".join(lines)

    def labelled(self, label: Literal["error", "hint", "warning"], text: str) -> str:
        """A sentence after its label, which is coloured."""
        whole = self.wrapped(f"{label}: {text}")
        return self.styled(f"{label}:", **_LABELS[label]) + whole[len(label) + 1 :]

    def styled(self, text: str, **style: Any) -> str:
        return click.style(text, **style) if self.colour else text

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
        """Columns two spaces apart; nothing if there are no rows.

        If they do not fit beside each other, each row is a list of its cells.
        """
        if not rows:
            return ""
        widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
        if self.width is not None and 2 * len(widths) + sum(widths) > self.width:
            return "\n".join(
                line for row in rows for line in self._stacked(header, row)
            )
        head = "  ".join(
            self.styled(cell, bold=True) + " " * (width - len(cell))
            for cell, width in zip(header, widths, strict=True)
        )
        lines = [
            "  ".join(
                self._cell(cell) + " " * (width - len(cell))
                for cell, width in zip(row, widths, strict=True)
            )
            for row in rows
        ]
        return "\n".join(f"  {line}".rstrip() for line in (head, *lines))

    def _stacked(self, header: Sequence[str], row: Sequence[str]) -> Iterator[str]:
        """One row of a table: a line with its first cell, then the others."""
        yield f"  {row[0]}"
        cells = zip(header[1:], row[1:], strict=True)
        listed = ", ".join(f"{name.lower()}: {cell}" for name, cell in cells)
        yield self.wrapped(listed, indent="    ")

    def _cell(self, text: str) -> str:
        """A cell in the colour of its state."""
        colour = _COLOURS.get(text.strip())
        return self.styled(text, fg=colour) if colour else text

    def paragraph(self, *sentences: str) -> str:
        return self.wrapped(" ".join(sentences))

    def wrapped(self, text: str, indent: str = "") -> str:
        text = with_target(text, self.target)
        if text and self.width is not None:
            text = in_lines(text, max(self.width, 20), indent)
        elif text:
            text = indent + text
        if self.colour:
            text = _COMMAND.sub(lambda found: click.style(found[0], bold=True), text)
        return text
