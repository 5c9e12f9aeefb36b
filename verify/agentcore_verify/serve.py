"""`agentcore-patch serve`: an SGLang server to try things on, until Ctrl-C."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click

from agentcore_patches import api
from agentcore_patches.errors import Interrupted, ServerError, UsageError
from agentcore_patches.results import StatusResult
from agentcore_patches.shell.options import (
    COLOR,
    QUIET,
    SharedOptions,
    verbose_option,
)
from agentcore_patches.shell.terminal import print_text
from agentcore_patches.shell.text_output import NO_RUST_SERVER, TextOutput

from .launching import SCRIPTED, Launching, server_options, temporary_log
from .options import (
    DEVICE,
    PYTHON,
    SGLANG_DIR,
    STARTUP_TIMEOUT,
    SGLangCommand,
)
from .progress import progress_on
from .report import stream_console
from .server import HOST, OnLoading, Server, free_port, option_value, port_is_free
from .signals import signals_as_exceptions

POLL_INTERVAL = 0.2
"""Seconds between two looks at the server and its log."""


@click.command(
    cls=SGLangCommand,
    short_help="Start a server to try things on.",
)
@click.option(
    "--model",
    required=True,
    metavar="PATH_OR_ID",
    help="The model to serve. `scripted` is a tiny model that needs no download: this "
    "command trains it once and caches it.",
)
@click.option(
    "--host", default=HOST, show_default=True, help="The address to listen on."
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=30000,
    show_default=True,
    help="The port to listen on; 0 takes a free one.",
)
@DEVICE
@PYTHON
@SGLANG_DIR
@STARTUP_TIMEOUT
@QUIET
@verbose_option("Also show SGLang's launch options and its log.")
@COLOR
@click.argument("server_args", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
def serve(
    asked: SharedOptions,
    /,
    model: str,
    host: str,
    port: int,
    python: Path | None,
    sglang_dir: Path | None,
    server_args: tuple[str, ...],
    **options: Any,
) -> None:
    """Start SGLang as `verify` does, and keep it running until Ctrl-C.

    Prints the URL when the server is ready. SGLang's log goes to a file, which is removed
    when the server is stopped. Everything after -- is passed to sglang.launch_server.
    Needs no GPU. An unpatched SGLang is started as well, with a warning.

    \b
    Examples:
      agentcore-patch serve --model scripted
          on any machine, without a download
      agentcore-patch serve --model Qwen/Qwen3-0.6B --port 30001
          another model, on another port
      agentcore-patch serve --model scripted -- --stream-output
          with options of SGLang
    """
    if sglang_dir:
        asked.target.pop("--python", None)
    for given in ("--host", "--port"):
        if option_value(server_args, given) is not None:
            raise UsageError(f"Give {given} before `--`.")
    status = api.status(sglang_dir=sglang_dir, python=None if sglang_dir else python)
    if status.rust_server:
        raise UsageError(f"{NO_RUST_SERVER} Unset it first.")
    if port and not port_is_free(host, port):
        raise ServerError(
            f"Port {port} is in use.", hint="Choose another --port; 0 takes a free one."
        )
    output = TextOutput.on(sys.stdout, asked)
    shows = asked.detail != "quiet"
    follows = asked.detail == "verbose"
    ready = False
    with (
        signals_as_exceptions(),
        temporary_log("serve", ServerError) as log,
        log.open(errors="replace") as lines,
    ):

        def follow(*_: object) -> None:
            """With -v, copy what is new in the log to stderr."""
            if follows:
                with suppress(OSError, ValueError):
                    print(lines.read(), end="", file=sys.stderr, flush=True)

        launching = server_options(
            Launching(
                model,
                python,
                sglang_dir,
                # Most answers of the scripted model are plain text.
                reasoning_parser="" if model == SCRIPTED else None,
                server_args=(
                    *("--host", host, "--port", str(port or free_port(host))),
                    *server_args,
                ),
                **options,
            ),
            log=log,
            notify=lambda line: _note(line) if shows else None,
            package=status.install.package,
        )
        server = Server(launching)
        try:
            if follows:
                _note(f"{launching.python} {' '.join(launching.args)}")
            elif shows:
                _note(f"starting SGLang; its log is {log}")
            with _spinner(asked) as on_loading:
                server.start(follow if follows else on_loading)
            ready = True
            if shows:
                print_text(_ready(output, server, status), color=asked.color)
            while True:
                server.ensure_alive()
                follow()
                time.sleep(POLL_INTERVAL)
        except KeyboardInterrupt:
            if not ready:
                raise Interrupted(
                    "while SGLang was starting. It was stopped."
                ) from None
        finally:
            server.stop()
            follow()
        log.unlink(missing_ok=True)
    if shows:
        _note("the server was stopped")


@contextmanager
def _spinner(asked: SharedOptions) -> Iterator[OnLoading | None]:
    """Show the start's progress, unless the terminal is for another command or the log."""
    if asked.detail == "normal" and _is_in_foreground():
        with progress_on(stream_console(sys.stderr, asked.color)) as progress:
            yield progress.loading
    else:
        yield None


def _is_in_foreground() -> bool:
    """True if Ctrl-C in the terminal of stderr reaches this process."""
    try:
        return os.tcgetpgrp(sys.stderr.fileno()) == os.getpgrp()
    except (OSError, ValueError):
        return False


def _note(line: str) -> None:
    print_text(f"agentcore-patch: {line}", sys.stderr)


def _ready(output: TextOutput, server: Server, status: StatusResult) -> str:
    """Return a line with the URL, and a warning if the patches are not in place."""
    stops = "Ctrl-C" if _is_in_foreground() else f"`kill {os.getpid()}`"
    line = output.wrapped(
        f"SGLang {status.install.version} is ready at {server.base_url} ({stops} stops it)"
    )
    if not status.patches:
        return f"{line}\n" + output.labelled(
            "warning",
            "This SGLang is not patched: its answers have no token IDs. To patch it: "
            "`agentcore-patch apply`, then start the server again.",
        )
    if not status.complete:
        return f"{line}\n" + output.labelled(
            "warning",
            f"The patches are {status.state.value}: see `agentcore-patch status`.",
        )
    return line
