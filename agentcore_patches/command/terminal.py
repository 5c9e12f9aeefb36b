"""Printing to a terminal, a pipe or a file, whatever its encoding."""

from __future__ import annotations

import os
import re
import sys
from io import TextIOWrapper
from typing import Literal, TextIO

import click

from agentcore_patches.errors import AccessError

# Stands for a space at which a line must not be broken.
_NO_BREAK = "\0"


def print_text(
    text: str,
    stream: TextIO | None = None,
    color: Literal["auto", "always", "never"] = "auto",
) -> None:
    """Print text and a newline, to stdout by default; its colours too, if `color` says so.

    `auto` is for terminals, unless the environment says NO_COLOR or TERM=dumb.

    Characters that the stream cannot encode are escaped. It is no error if nobody reads
    the stream any more.

    Raises:
        AccessError: the stream cannot be written to, for want of disk space for instance.
    """
    stream = stream or sys.stdout
    if isinstance(stream, TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    coloured = {"always": True, "never": False, "auto": False if plain else None}[color]
    try:
        click.echo(text, file=stream, color=coloured)
    except OSError as error:
        # The interpreter flushes the stream once more when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        if not isinstance(error, BrokenPipeError):
            raise AccessError(
                f"Cannot write to {stream.name}: {error.strerror}. The command itself is "
                "done: `agentcore-patch status` shows what is in place."
            ) from error


def in_lines(text: str, width: int, indent: str = "") -> str:
    """One line as lines that fit; a command in backticks is not broken, to be copied."""
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
