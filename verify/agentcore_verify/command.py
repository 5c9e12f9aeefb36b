"""The command `agentcore-patch verify`: parse, call, show."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import click
from rich.console import Console

from agentcore_patches.errors import AccessError

from . import checks, progress, report, runner
from .results import Report

_FORMATS: Mapping[str, Callable[[], report.Format]] = {
    "json_file": report.Json,
    "junit_file": report.JUnit,
    "svg_file": report.Svg,
}
_LOG_WIDTH = 120
"""Columns of the table where there is no terminal."""


def _list_checks(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        width = max(map(len, checks.NAMES))
        for name in checks.NAMES:
            click.echo(f"{name:{width}}  {checks.get(name).summary}")
        context.exit()


def _file(option: str, name: str, text: str) -> Callable[[Any], Any]:
    return click.option(
        option, name, type=click.Path(path_type=Path), metavar="FILE", help=text
    )


class _Command(click.Command):
    """Says of an option that it does not know where SGLang's own go."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            raise click.UsageError(
                f"{error.format_message()} SGLang's own options go after `--`.", ctx
            ) from None


@click.command(
    cls=_Command,
    short_help="Check a real server, request by request.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--model",
    metavar="PATH_OR_ID",
    help="The model to serve. `scripted` is a tiny one that this command makes and "
    "keeps: it needs no download, and takes every way that is checked.",
)
@click.option(
    "--base-url",
    metavar="URL",
    help="Check a server that is running already. What needs a launch option is skipped.",
)
@click.option("--api-key", metavar="KEY", help="The key that the server asks for.")
@click.option(
    "--python",
    type=click.Path(path_type=Path),
    metavar="EXE",
    help="The Python interpreter to launch SGLang in. Default: the one that runs this.",
)
@click.option(
    "--sglang-dir",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The `sglang` package folder to launch, the one that holds srt/. Default: that "
    "of the interpreter.",
)
@click.option(
    "--device",
    type=click.Choice(["auto", "cuda", "cpu"]),
    default="auto",
    show_default=True,
    help="cpu: run SGLang without a GPU or CUDA. auto: that where there is no GPU.",
)
@click.option(
    "--check",
    "names",
    type=click.Choice(checks.NAMES),
    multiple=True,
    metavar="NAME",
    help="Run this check only; may be repeated. Default: all.",
)
@click.option(
    "--list-checks",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_list_checks,
    help="List the checks, and end.",
)
@click.option(
    "--tool-call-parser",
    metavar="NAME",
    help="SGLang's parser for the model's tool calls. Default: told from the model.",
)
@click.option(
    "--reasoning-parser",
    metavar="NAME",
    help="SGLang's parser for the model's reasoning. Default: told from the model.",
)
@click.option(
    "--startup-timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="How long the server may take until it generates.",
)
@click.option(
    "--strict",
    is_flag=True,
    help="Fail also if a check could not see what it is about.",
)
@_file("--json", "json_file", "Write the report as JSON.")
@_file("--junit", "junit_file", "Write the report as JUnit XML, for CI.")
@_file("--svg", "svg_file", "Write the report as a picture.")
@_file("--log", "log", "Write the server's output. Default: a file kept on failure.")
@click.argument("server_args", nargs=-1, type=click.UNPROCESSED)
def verify(
    names: tuple[str, ...],
    json_file: Path | None,
    junit_file: Path | None,
    svg_file: Path | None,
    **options: Any,
) -> int:
    """Prove on a real server that a patched SGLang keeps its promises.

    Launches SGLang on a free port of 127.0.0.1, asks it in every way a trainer does,
    compares the token IDs of all answers, ends it, and says where anything is wrong.
    What stands after -- goes to sglang.launch_server as it is.

    A check that did not see what it is about (the model called no tool, for instance)
    is `not exercised`, never passed. A check that compares two answers is
    `inconclusive` if the engine does not repeat itself.

    \b
    Examples:
      agentcore-patch verify --model scripted
          on any machine, without a download
      agentcore-patch verify --model Qwen/Qwen3-0.6B --junit verify.xml
          a model that you train, in CI
      agentcore-patch verify --model /models/big -- --tp 8 --stream-output
          with the server options that you run with
      agentcore-patch verify --base-url http://127.0.0.1:30000 --api-key KEY
          a server that is running already
      agentcore-patch verify --model scripted --check logprobs --check tools
          just these two

    \b
    Exit codes:
      0  all checks passed, those aside that the server or the model rules out
      1  a check failed or was inconclusive, or none passed
      2  usage
      3  no SGLang there, or a version that is not supported
      5  a file could not be read or written
      6  the server did not start, or died
    """
    files = {
        name: path
        for name, path in (
            ("json_file", json_file),
            ("junit_file", junit_file),
            ("svg_file", svg_file),
        )
        if path is not None
    }
    wanted = runner.Options(
        checks=tuple(name for name in checks.NAMES if not names or name in names),
        **options,
    )
    _refuse_nonsense(wanted)
    for path in (*files.values(), *filter(None, [wanted.log])):
        _assert_writable(path)
    with _terminable(), progress.shown(_console(sys.stderr)) as shown:
        result = runner.run(wanted, shown)
    for name, path in files.items():
        _write(path, _FORMATS[name]().render(result))
    _print(result)
    return result.exit_code


def _refuse_nonsense(options: runner.Options) -> None:
    if options.base_url is None:
        if options.model is None:
            raise click.UsageError("Give --model, or --base-url of a running server.")
        return
    if not options.base_url.startswith(("http://", "https://")):
        raise click.UsageError("--base-url wants a URL such as http://127.0.0.1:30000.")
    launching = {
        "SERVER_ARGS": options.server_args,
        "--python": options.python,
        "--sglang-dir": options.sglang_dir,
        "--device": options.device != "auto",
        "--tool-call-parser": options.tool_call_parser,
        "--reasoning-parser": options.reasoning_parser,
        "--log": options.log,
    }
    if useless := [name for name, given in launching.items() if given]:
        raise click.UsageError(
            f"With --base-url no server is launched: leave {', '.join(useless)} out."
        )


def _assert_writable(path: Path) -> None:
    """Better told now than when the run is over."""
    folder = path.expanduser().absolute().parent
    if path.is_dir() or not (folder.is_dir() and os.access(folder, os.W_OK)):
        raise AccessError(f"Cannot write {path}: {folder} is no folder to write into.")


def _write(path: Path, text: str) -> None:
    try:
        path.expanduser().write_text(text, "utf-8", errors="backslashreplace")
    except OSError as error:
        raise AccessError(f"Cannot write {path}: {error.strerror}.") from error


def _print(result: Report) -> None:
    console = _console(sys.stdout)
    colour = console.color_system is not None and not console.no_color
    width = console.width if console.is_terminal else _LOG_WIDTH
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")
    try:
        click.echo(report.Table(width, colour=colour).render(result), color=colour)
    except BrokenPipeError:
        # Nobody reads on; the interpreter flushes once more when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if result.error is not None:
        click.echo(f"Error: {result.error}", err=True)


def _console(stream: Any) -> Console:
    return Console(file=stream, highlight=False, markup=False, emoji=False)


@contextmanager
def _terminable() -> Iterator[None]:
    """Make SIGTERM an exception, so that the server is ended on the way out."""

    def terminate(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
