"""Shows a page of the documentation in the terminal."""

from __future__ import annotations

import os
import sys

import click
from rich.console import Console
from rich.markdown import Markdown
from rich.theme import Theme

from agentcore_patches.command.documentation import Page
from agentcore_patches.shell.terminal import (
    Color,
    has_colours,
    terminal_width,
)

_THEME = Theme({"markdown.code": "bold cyan", "markdown.code_block": "cyan"})
"""Rich's own style has a black background, which stands out on a light terminal."""

_WIDTH = 88
"""Columns of a page without a terminal; the maximum on a terminal."""


def show_page(page: Page, color: Color) -> None:
    """Print a page; in a pager if stdout is a terminal."""
    columns = terminal_width(sys.stdout)
    coloured = has_colours(sys.stdout, color)
    console = Console(
        width=min(columns or _WIDTH, _WIDTH),
        color_system="standard" if coloured else None,
        force_terminal=coloured or None,
        no_color=not coloured,
        highlight=False,
        theme=_THEME,
    )
    with console.capture() as captured:
        console.print(
            Markdown(page.markdown(), hyperlinks=False, code_theme="ansi_dark")
        )
    lines = (line.rstrip() for line in captured.get().splitlines())
    # By default, `less` would show the colours as codes.
    os.environ.setdefault("LESS", "-FRX")
    click.echo_via_pager("\n".join(lines), color=coloured)
