"""The command: parse, call, show. What it does is in `api`, what it says in `console`."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TextIO, TypeVar

import click

from agentcore_patches import api, console
from agentcore_patches._version import __version__
from agentcore_patches.errors import (
    AccessError,
    AgentcoreError,
    ServerError,
    SourceConflict,
    UnsupportedTarget,
    UsageError,
)
from agentcore_patches.patches import registry

_PROGRAM = "agentcore-patch"
_DEBUG = "AGENTCORE_DEBUG"
_INTERRUPTED = 130
_BUG = 70
_KINDS = {
    UsageError.exit_code: "usage",
    UnsupportedTarget.exit_code: "unsupported-target",
    SourceConflict.exit_code: "source-conflict",
    AccessError.exit_code: "access",
    ServerError.exit_code: "server",
}

Command = TypeVar("Command", bound=Callable[..., Any])


def main(args: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code, whatever happens."""
    args = list(sys.argv[1:] if args is None else args) or ["--help"]
    try:
        code = commands.main(args, prog_name=_PROGRAM, standalone_mode=False)
        return code if isinstance(code, int) else 0
    except SystemExit:
        raise
    except BaseException as error:
        failure = _failure(error)
        with suppress(AccessError):
            if "--json" in itertools.takewhile(lambda arg: arg != "--", args):
                _show(console.Json().failure(failure))
            else:
                _show(_text(sys.stderr).failure(failure), sys.stderr)
        return failure.exit_code


class _Commands(click.Group):
    """The commands; `verify` is another package's and imported only when it is run."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] == "verify":
            from agentcore_verify.command import verify

            self.add_command(verify)
        return super().resolve_command(ctx, args)


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""
\b
Exit codes:
  0  done, or nothing left to do
  1  status --check: not fully applied; verify: a check failed; --ray: a node failed
  2  usage
  3  no SGLang there, or a version that is not supported
  4  the sources do not have the expected shape, or somebody changed them
  5  files could not be read, written or locked, or a Ray cluster not be reached
  6  verify: the server did not start, or died
 70  a bug of this command (AGENTCORE_DEBUG=1 shows the traceback)
130  interrupted

With 3, 4 and 5 nothing was changed.
""",
)
@click.version_option(__version__, prog_name=_PROGRAM, message="%(prog)s %(version)s")
def commands() -> None:
    """Exact token IDs for RL trainers from an installed SGLang v0.5.9.

    Rewrites the source files of an installed SGLang, all of them or none, so that
    /v1/chat/completions answers with the token IDs of prompt and completion.

    \b
    agentcore-patch apply            patch the SGLang of this Python
    agentcore-patch status --check   exit 1 unless all patches are in place
    agentcore-patch revert           give every byte back
    """


commands.add_command(
    click.Command("verify", short_help="Check a real server, request by request.")
)


def _options(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Several options as one decorator, in the order of the help text."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


_target = _options(
    click.option(
        "--sglang-dir",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="The `sglang` package folder itself, the one that holds srt/.",
    ),
    click.option(
        "--python",
        type=click.Path(path_type=Path),
        metavar="EXE",
        help="The Python interpreter whose SGLang it is. Without this and without "
        "--sglang-dir it is the one that runs this command.",
    ),
)
_ray = click.option(
    "--ray",
    metavar="ADDRESS",
    help="Do it on every node of this Ray cluster, where DIR and EXE are meant: `auto`, "
    "HOST:PORT or ray://HOST:PORT, as ray.init takes it.",
)
_json = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document, errors included."
)
_lock_timeout = click.option(
    "--lock-timeout",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for another agentcore-patch at work on the same SGLang.",
)


def _only(text: str) -> Callable[[Command], Command]:
    return click.option(
        "--only",
        type=click.Choice(registry.names()),
        multiple=True,
        help=f"{text} May be repeated. Default: all.",
    )


@commands.command(short_help="Patch SGLang.")
@_target
@_ray
@_only("Apply exactly this patch; what it needs comes with it.")
@click.option("--dry-run", is_flag=True, help="Write nothing to SGLang's files.")
@click.option("--diff", is_flag=True, help="Show what changes in each file.")
@_lock_timeout
@_json
def apply(as_json: bool, ray: str | None, diff: bool, **options: Any) -> int:
    """Patch SGLang: all files or none.

    The patches named by --only, or all, are in place afterwards, and no others:
    patches of an earlier run or an older version are replaced, starting from the
    original files. Where that is so already nothing is written. Changes that others
    made to the sources are kept. Files are replaced, never written into, so that
    environments that share them by hard links stay as they are.

    With --ray, one task on each node does this there, all at once; agentcore-patches
    has to be installed on each. A node that fails keeps no other from being patched.

    \b
    Examples:
      agentcore-patch apply
          patch the SGLang of the Python that this command is installed in
      agentcore-patch apply --python /opt/venv/bin/python
          patch that of another environment
      agentcore-patch apply --sglang-dir /sgl-workspace/sglang/python/sglang
          patch a checkout
      agentcore-patch apply --dry-run --diff
          show what would change
      agentcore-patch apply --only token-ids --only tito
          have just these two
      agentcore-patch apply --ray auto
          patch every node of the Ray cluster that this machine is in
    """
    if ray is None:
        result = api.apply(**options, diff=diff, notify=_notify)
        _show(_format(as_json).applied(result))
        return 0
    if diff:
        raise UsageError("--diff shows one SGLang; it does not go with --ray.")
    from agentcore_patches import cluster

    results = cluster.apply_on_ray(ray, **options)
    _show(_format(as_json).applied_on_ray(results))
    return int(any(result.error for result in results))


@commands.command(short_help="Tell which patches are in place.")
@_target
@_ray
@_only("With --check, ask only about this patch.")
@click.option(
    "--check", is_flag=True, help="Exit 1 unless the patches are in place, up to date."
)
@_json
def status(as_json: bool, ray: str | None, check: bool, **options: Any) -> int:
    """Tell which patches are in place, and what else was changed.

    For each file that patches change: whether it is patched or was edited or replaced
    since, and whether its source is as released (SOURCE), which the hashes in the
    wheel's RECORD tell; an editable install has none.

    What a killed command left is put right first, if this user may write there.

    \b
    Examples:
      agentcore-patch status
      agentcore-patch status --check --only token-ids
          exit 1 unless token-ids is in place, whatever else is
      agentcore-patch status --json | jq .complete
      agentcore-patch status --check --ray 10.0.0.1:6379
          exit 1 unless all patches are in place on every node
    """
    if ray is None:
        result = api.status(**options, notify=_notify)
        _show(_format(as_json).status(result))
        return 1 if check and not result.complete else 0
    from agentcore_patches import cluster

    results = cluster.status_on_ray(ray, **options)
    _show(_format(as_json).status_on_ray(results))
    failed = any(node.error or (check and not node.complete) for node in results)
    return int(failed)


@commands.command(short_help="Give every byte back.")
@_target
@click.option(
    "--force",
    is_flag=True,
    help="Also give back files that somebody changed since; that change is lost.",
)
@_lock_timeout
@_json
def revert(as_json: bool, **options: Any) -> None:
    """Give back every byte that was there before the first apply.

    No file of this command is left behind. A file that somebody changed since it was
    patched is not touched (exit 4), and neither is any other then, unless --force.

    \b
    Examples:
      agentcore-patch revert
      agentcore-patch revert --sglang-dir /sgl-workspace/sglang/python/sglang
    """
    _show(_format(as_json).reverted(api.revert(**options, notify=_notify)))


@commands.command("list", short_help="List the patches there are.")
@_json
def list_patches(as_json: bool) -> None:
    """List the patches there are, what each gives and which files it changes."""
    _show(_format(as_json).patches(api.available()))


def _format(as_json: bool) -> console.Format:
    return console.Json() if as_json else _text(sys.stdout)


def _text(stream: TextIO) -> console.Text:
    """Text that fits the terminal, unwrapped where there is none."""
    try:
        return console.Text(os.get_terminal_size(stream.fileno()).columns or None)
    except (OSError, ValueError, AttributeError):
        return console.Text()


def _notify(line: str) -> None:
    _show(_text(sys.stderr).notice(f"{_PROGRAM}: {line}"), sys.stderr)


def _show(text: str, stream: TextIO | None = None) -> None:
    """Print, whatever the encoding; a reader that went away is no error."""
    stream = stream or sys.stdout
    if isinstance(stream, TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    try:
        click.echo(text, file=stream, color=False if plain else None)
    except OSError as error:
        # The interpreter flushes once more when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        if not isinstance(error, BrokenPipeError):
            raise AccessError(
                f"Cannot write to {stream.name}: {error.strerror}. "
                "`agentcore-patch status` tells what is in place."
            ) from error


def _failure(error: BaseException) -> console.Failure:
    match error:
        case AgentcoreError():
            return console.Failure(_KINDS[error.exit_code], error.exit_code, str(error))
        case click.UsageError():
            command = error.ctx.command_path if error.ctx else _PROGRAM
            message = f"{error.format_message()} See `{command} --help`."
            return console.Failure("usage", error.exit_code, message)
        case click.ClickException():
            return console.Failure("usage", error.exit_code, error.format_message())
        case click.Abort() | KeyboardInterrupt():
            message = "Interrupted. `agentcore-patch status` tells what is in place."
            return console.Failure("interrupted", _INTERRUPTED, message)
    if os.environ.get(_DEBUG):
        raise error
    message = (
        f"This is a bug of agentcore-patch {__version__}: {type(error).__name__}: "
        f"{error}. Please report it with what the same command prints under {_DEBUG}=1."
        " `agentcore-patch status` tells what is in place."
    )
    return console.Failure("bug", _BUG, message)
