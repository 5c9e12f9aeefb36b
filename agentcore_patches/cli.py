"""The click commands: each parses its options, calls `api` and shows the result."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click

from agentcore_patches import api
from agentcore_patches._version import __version__
from agentcore_patches.errors import PROGRAM, AccessError, UsageError
from agentcore_patches.patches import registry
from agentcore_patches.printing import print_text, terminal_width

if TYPE_CHECKING:
    from agentcore_patches.json_output import JsonOutput
    from agentcore_patches.text_output import TextOutput

Command = TypeVar("Command", bound=Callable[..., Any])


def main(args: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code, whatever happens."""
    args = list(sys.argv[1:] if args is None else args) or ["--help"]
    try:
        code = commands.main(args, prog_name=PROGRAM, standalone_mode=False)
        return code if isinstance(code, int) else 0
    except SystemExit:
        raise
    except BaseException as error:
        from agentcore_patches.failure import DEBUG, failure_of

        failure = failure_of(error)
        if failure.kind == "bug" and os.environ.get(DEBUG):
            raise
        with suppress(AccessError):
            if _wants_json(args):
                print_text(_output(as_json=True).failure(failure))
            else:
                print_text(_text_output(sys.stderr).failure(failure), sys.stderr)
        return failure.exit_code


def _wants_json(args: Sequence[str]) -> bool:
    """Whether --json is given, also where the arguments cannot be parsed."""
    ours = args[: args.index("--")] if "--" in args else args
    return "--json" in ours


class _Verify(click.Command):
    """The command of `agentcore_verify`, which is imported only when it is run."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        from agentcore_verify.command import verify

        return verify.make_context(info_name, args, parent, **extra)


@click.group(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""
\b
Exit codes:
  0  done, or nothing left to do
  1  status --check: not fully applied; verify: a check failed; --ray: a node failed
  2  usage
  3  no SGLang there, or a version that is not supported
  4  the sources do not have the expected shape, or somebody changed them
  5  files could not be read, written or locked, or a Ray cluster not reached
  6  verify: the server did not start, or died
  7  a patch module is written wrongly; the message names patch and edit
 70  a bug in this command (AGENTCORE_DEBUG=1 shows the traceback)
130  interrupted

With 3, 4 and 5 nothing was changed.
""",
)
@click.version_option(__version__, prog_name=PROGRAM, message="%(prog)s %(version)s")
def commands() -> None:
    """Exact token IDs for RL trainers from an installed SGLang.

    Rewrites the source files of an installed SGLang, all of them or none, so that
    /v1/chat/completions answers with the token IDs of prompt and completion.

    \b
    agentcore-patch apply            patch the SGLang of this Python
    agentcore-patch status --check   exit 1 unless all patches are in place
    agentcore-patch revert           restore the original files
    """


commands.add_command(
    _Verify("verify", short_help="Check a real server, request by request.")
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
        help="The Python interpreter that imports the SGLang. Default, without "
        "--sglang-dir too: the one that runs this command.",
    ),
)
_ray = click.option(
    "--ray",
    metavar="ADDRESS",
    help="Do this on every node of a Ray cluster: `auto`, HOST:PORT or ray://HOST:PORT, "
    "as ray.init takes it. DIR and EXE are then paths on each node.",
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
    help="How long to wait for another agentcore-patch that works on the same SGLang.",
)


def _patch_names(
    context: click.Context, option: click.Parameter, incomplete: str
) -> list[str]:
    return [name for name in registry.names() if name.startswith(incomplete)]


def _only(text: str) -> Callable[[Command], Command]:
    return click.option(
        "--only",
        metavar="NAME",
        multiple=True,
        shell_complete=_patch_names,
        help=f"{text} May be repeated. Default: all; `{PROGRAM} list` shows them.",
    )


@commands.command(short_help="Patch SGLang.")
@_target
@_ray
@_only("Apply this patch only, with what it needs.")
@click.option("--dry-run", is_flag=True, help="Write nothing.")
@click.option("--diff", is_flag=True, help="Show what changes in each file.")
@_lock_timeout
@_json
def apply(as_json: bool, ray: str | None, diff: bool, **options: Any) -> int:
    """Patch SGLang: all files or none.

    Afterwards the patches named by --only, or all, are in place, and no others:
    patches of an earlier run or an older version are replaced, starting from the
    original files. If nothing has to change, nothing is written. Changes that others
    made to the sources are kept. Files are replaced, never written into, so that
    environments that share them by hard links stay as they are.

    With --ray, one task per node does this on all nodes at once; agentcore-patches
    has to be installed on each of them. If it fails on one node, the others are
    patched all the same.

    \b
    Examples:
      agentcore-patch apply
          patch the SGLang of the Python that this command is installed in
      agentcore-patch apply --python /opt/venv/bin/python
          patch the SGLang of another environment
      agentcore-patch apply --sglang-dir /sgl-workspace/sglang/python/sglang
          patch a checkout
      agentcore-patch apply --dry-run --diff
          show what would change
      agentcore-patch apply --only token-ids --only tito
          apply just these two
      agentcore-patch apply --ray auto
          patch every node of the Ray cluster that this machine is in
    """
    if ray is None:
        result = api.apply(**options, diff=diff, notify=_notify)
        print_text(_output(as_json=as_json).applied(result))
        return 0
    if diff:
        raise UsageError("--diff cannot be used with --ray: it shows one SGLang only.")
    from agentcore_patches import cluster

    results = cluster.apply_on_ray(ray, **options)
    print_text(_output(as_json=as_json).applied_on_ray(results))
    return int(any(result.error for result in results))


@commands.command(short_help="Show which patches are in place.")
@_target
@_ray
@_only("With --check, check only this patch.")
@click.option(
    "--check", is_flag=True, help="Exit 1 unless the patches are in place, up to date."
)
@_json
def status(as_json: bool, ray: str | None, check: bool, **options: Any) -> int:
    """Show which patches are in place, and what else was changed.

    For each file that patches change: whether it is patched, or was edited or replaced
    since, and whether its source is as released (SOURCE). The latter is found out by
    the hashes in the wheel's RECORD; an editable install has none.

    Nothing is written. What a killed command left is reported; the next apply or revert
    finishes or undoes it.

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
        result = api.status(**options)
        print_text(_output(as_json=as_json).status(result))
        return 1 if check and not result.complete else 0
    from agentcore_patches import cluster

    results = cluster.status_on_ray(ray, **options)
    print_text(_output(as_json=as_json).status_on_ray(results))
    failed = any(node.error or (check and not node.complete) for node in results)
    return int(failed)


@commands.command(short_help="Restore the original files.")
@_target
@click.option(
    "--force",
    is_flag=True,
    help="Also restore files that somebody changed since; those changes are lost.",
)
@_lock_timeout
@_json
def revert(as_json: bool, **options: Any) -> None:
    """Restore every byte that was there before the first apply.

    No file of this command is left behind. If somebody changed a file since it was
    patched, nothing is restored (exit 4), unless --force.

    \b
    Examples:
      agentcore-patch revert
      agentcore-patch revert --sglang-dir /sgl-workspace/sglang/python/sglang
    """
    print_text(_output(as_json=as_json).reverted(api.revert(**options, notify=_notify)))


@commands.command("list", short_help="List all patches.")
@_json
def list_patches(as_json: bool) -> None:
    """List all patches: what each gives, and which files it changes."""
    print_text(_output(as_json=as_json).patches(api.available()))


def _output(*, as_json: bool) -> JsonOutput | TextOutput:
    if as_json:
        from agentcore_patches.json_output import JsonOutput

        return JsonOutput()
    return _text_output(sys.stdout)


def _text_output(stream: TextIO) -> TextOutput:
    from agentcore_patches.text_output import TextOutput

    return TextOutput(terminal_width(stream))


def _notify(line: str) -> None:
    print_text(_text_output(sys.stderr).notice(f"{PROGRAM}: {line}"), sys.stderr)
