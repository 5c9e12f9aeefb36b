"""The layout of help texts on terminals of any width."""

from __future__ import annotations

import shutil
from collections.abc import Iterable

import click

from agentcore_patches.shell.terminal import folded

_NARROWEST = 50
"""Columns below which click no longer fits its help into the terminal."""


class HelpFormatter(click.HelpFormatter):
    """Also fits narrow terminals, and folds lines that click leaves as they are."""

    def __init__(
        self,
        indent_increment: int = 2,
        width: int | None = None,
        max_width: int | None = None,
    ) -> None:
        super().__init__(indent_increment, width, max_width)
        if width is None:
            self.width = min(self.width, shutil.get_terminal_size().columns - 2)

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        if self.width < _NARROWEST:
            col_max = self.width // 3
        super().write_dl(list(rows), col_max, col_spacing)

    def getvalue(self) -> str:
        return folded(super().getvalue(), self.width + 2)


class HelpContext(click.Context):
    """The context of each command, for its help."""

    formatter_class = HelpFormatter


class CommandWithHelp(click.Command):
    """A command whose help fits the terminal."""

    context_class = HelpContext


class GroupWithHelp(click.Group):
    """A group whose help fits the terminal, as does its commands' help."""

    context_class = HelpContext
    command_class = CommandWithHelp
