"""Options that commands of this package share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from agentcore_patches.errors import AccessError, UsageError
from agentcore_patches.installs.install import expand_user
from agentcore_patches.shell.options import remember_target


class PathOption(click.Path):
    """A path that may start with `~`, which no shell expands in `--log=~/file`."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        return super().convert(expand_user(value), param, ctx)


class SGLangCommand(click.Command):
    """Explains where SGLang's options go if an option is unknown."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            raise UsageError(
                error.format_message(), hint="Options of SGLang go after `--`."
            ) from None


PYTHON = click.option(
    "--python",
    type=PathOption(),
    metavar="EXE",
    callback=remember_target,
    help="The Python interpreter to launch SGLang with. Default: the one that runs this "
    "command.",
)

SGLANG_DIR = click.option(
    "--sglang-dir",
    type=PathOption(),
    metavar="DIR",
    callback=remember_target,
    help="The `sglang` package folder to launch, the one that contains srt/. Default: "
    "the interpreter's.",
)

DEVICE = click.option(
    "--device",
    type=click.Choice(["auto", "cuda", "cpu"]),
    default="auto",
    show_default=True,
    help="cpu: run SGLang without a GPU or CUDA. auto: cpu if there is no GPU.",
)

STARTUP_TIMEOUT = click.option(
    "--startup-timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait until the server generates tokens.",
)


JSON = click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON document on stdout instead of the table, errors included.",
)


def file_option(option: str, text: str) -> Callable[[Any], Any]:
    return click.option(option, type=PathOption(), metavar="FILE", help=text)


def assert_writable(path: Path) -> None:
    """Raise AccessError now, not at the end of the run."""
    folder = path.absolute().parent
    if path.is_dir():
        raise AccessError(f"Cannot write {path}: it is a folder.")
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        raise AccessError(f"Cannot write {path}: {folder} is not a writable folder.")


def write_file(path: Path, text: str) -> None:
    try:
        path.write_text(text, "utf-8", errors="backslashreplace")
    except OSError as error:
        raise AccessError(f"Cannot write {path}: {error.strerror}.") from error
