"""Printing to a terminal, a pipe or a file in any encoding."""

from __future__ import annotations

import os
import re
import sys
from io import TextIOWrapper
from typing import Literal, TextIO, TypeAlias

import click

from agentcore_patches.errors import AccessError

Color: TypeAlias = Literal["auto", "always", "never"]

# Replaces a space at which a line must not be broken.
_NO_BREAK = "\0"


def print_text(
    text: str,
    stream: TextIO | None = None,
    color: Color = "auto",
) -> None:
    """Print text and a newline, to stdout by default; in colours as `color` requires.

    `auto` is for terminals, unless the environment has NO_COLOR or TERM=dumb.

    Characters that the stream cannot encode are escaped. A stream that is no longer read
    is not an error.

    Raises:
        AccessError: the stream cannot be written to, for example on a full disk.
    """
    stream = stream or sys.stdout
    if isinstance(stream, TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
    try:
        click.echo(text, file=stream, color=has_colours(stream, color))
    except OSError as error:
        # The interpreter flushes the stream once more when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        if not isinstance(error, BrokenPipeError):
            raise AccessError(
                f"Cannot write to {stream.name}: {error.strerror}.",
                hint="The command itself "
                "finished: `agentcore-patch status` shows what is in place.",
            ) from error


def has_colours(stream: TextIO, color: Color) -> bool:
    """Return whether text on a stream has colours."""
    if color != "auto":
        return color == "always"
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return terminal_width(stream) is not None


def in_lines(text: str, width: int, indent: str = "") -> str:
    """Wrap a line; a command in backticks stays whole, so that it can be copied."""
    import textwrap

    unbroken = re.sub(
        "`[^`]*`", lambda command: command[0].replace(" ", _NO_BREAK), text
    )
    return textwrap.fill(
        unbroken,
        width,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    ).replace(_NO_BREAK, " ")


def terminal_width(stream: TextIO) -> int | None:
    """The columns of a stream's terminal; None if it is not a terminal."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or None
    except (OSError, ValueError, AttributeError):
        return None
