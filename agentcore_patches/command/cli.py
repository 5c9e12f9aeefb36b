"""The click commands: each parses its options, calls `api` and shows the result."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from agentcore_patches import api
from agentcore_patches.command.documentation import page, pages
from agentcore_patches.command.help_topics import TOPICS
from agentcore_patches.errors import PROGRAM, AccessError, UsageError
from agentcore_patches.installs.install import find
from agentcore_patches.patches import registry
from agentcore_patches.shell.advice import with_target
from agentcore_patches.shell.options import (
    COLOR,
    QUIET,
    VERSION,
    Command,
    SharedOptions,
    names_option,
    remember,
    remember_target,
    verbose_option,
)
from agentcore_patches.shell.terminal import print_text

if TYPE_CHECKING:
    from agentcore_patches.cluster.results import NodeResult
    from agentcore_patches.command.result_output import ResultOutput


def main(
    args: Sequence[str] | None = None,
    *,
    group: click.Group | None = None,
    program: str = PROGRAM,
) -> int:
    """Run the command and return its exit code; catches every error.

    `group` has the commands of another `program`.
    """
    group = group or commands
    args = list(sys.argv[1:] if args is None else args) or ["--help"]
    asked = SharedOptions()
    try:
        code = group.main(args, prog_name=program, standalone_mode=False, obj=asked)
        return code if isinstance(code, int) else 0
    except SystemExit:
        raise
    except BaseException as error:
        from agentcore_patches.shell.exit_codes import DEBUG, failure_of

        failure = failure_of(error, _typed(args, group, program))
        if failure.kind == "bug" and os.environ.get(DEBUG):
            raise
        failure = replace(
            failure,
            message=with_target(failure.message, asked.target),
            hint=with_target(failure.hint, asked.target),
        )
        with suppress(AccessError):
            if _wants_json(args):
                _print_json({"error": failure})
            else:
                text = _text_output(asked, sys.stderr).failure(failure)
                print_text(text, sys.stderr, asked.color)
        return failure.exit_code


def _typed(args: Sequence[str], group: click.Group, program: str) -> str:
    """Return the command that was typed, without its options."""
    name = next((name for name in args if name in group.commands), None)
    return program if name is None else f"{program} {name}"


def _wants_json(args: Sequence[str]) -> bool:
    """True if --json is given, even if the arguments cannot be parsed."""
    ours = args[: args.index("--")] if "--" in args else args
    return "--json" in ours


class _Deferred(click.Command):
    """A command of `agentcore_verify`, which is imported only when it is run."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        gc.enable()  # `python -m agentcore_patches` disables it.
        return deferred(str(self.name)).make_context(info_name, args, parent, **extra)


def deferred(name: str) -> click.Command:
    """Return the command that a stand-in of this group replaces."""
    module, _ = _DEFERRED[name]
    command: click.Command = getattr(import_module(module), name)
    return command


_DEFERRED = {
    "verify": ("agentcore_verify.command", "Check a real server, request by request."),
    "serve": (
        "agentcore_verify.serve",
        "Start a server to try things on; needs no GPU.",
    ),
    "audit": (
        "agentcore_verify.audit.command",
        "Look for defects in recorded rollouts.",
    ),
}
"""Modules of the commands, and their lines in the help."""


@click.group(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=f"""
`{PROGRAM} help exit-codes` and `{PROGRAM} help environment` explain more;
`{PROGRAM} docs` shows the documentation.
""",
)
@VERSION
def commands() -> None:
    """Exact token IDs for RL trainers from an installed SGLang.

    Rewrites the source files of an installed SGLang, all of them or none, so that
    /v1/chat/completions returns the token IDs of prompt and completion.

    \b
    agentcore-patch apply                    patch the SGLang of this Python
    agentcore-patch status --check           exit 1 unless fully patched
    agentcore-patch verify --model scripted  check a real server
    agentcore-patch revert                   restore the original files
    """


for _name, (_, _help) in _DEFERRED.items():
    commands.add_command(_Deferred(_name, short_help=_help))


def _options(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Combine several options into one decorator, in the order of the help text."""

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
        callback=remember_target,
        help="The `sglang` package folder itself, the one that holds srt/.",
    ),
    click.option(
        "--python",
        type=click.Path(path_type=Path),
        metavar="EXE",
        callback=remember_target,
        help="The Python interpreter that imports the SGLang. Default, without "
        "--sglang-dir too: the one that runs this command.",
    ),
)
_ray = click.option(
    "--ray",
    metavar="ADDRESS",
    callback=remember_target,
    help="Do this on every node of a Ray cluster: `auto`, HOST:PORT or ray://HOST:PORT, "
    "as ray.init accepts it. DIR and EXE are then paths on each node.",
)
_json = click.option(
    "--json",
    "as_json",
    is_flag=True,
    expose_value=False,
    callback=remember,
    help="Print one JSON document, errors included, even with -q or -v.",
)
_detail = _options(
    QUIET,
    verbose_option("Print a row for each file, not only for unusual ones."),
    COLOR,
)
_plain = _options(QUIET, verbose_option("Has no effect here."), COLOR)
"""The options that every command has, for commands that print one text."""
_lock_timeout = click.option(
    "--lock-timeout",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for another agentcore-patch that works on the same SGLang.",
)


def _extras() -> tuple[str, ...]:
    return (*registry.extras(), api.ALL)


@commands.command(short_help="Patch SGLang.")
@_target
@_ray
@names_option(
    "--with",
    "extras",
    known=_extras,
    help="Add these extras, or `all`. Commas between names, or repeat the option. "
    f"`{PROGRAM} list` shows them.",
)
@names_option("--without", known=_extras, help="Leave out or remove these extras.")
@click.option(
    "--unlisted",
    is_flag=True,
    help="Also patch an unsupported SGLang, if the edits of a supported release fit it.",
)
@click.option("--dry-run", is_flag=True, help="Write nothing.")
@click.option("--diff", is_flag=True, help="Show what changes in each file.")
@_lock_timeout
@_detail
@_json
@click.pass_obj
def apply(
    asked: SharedOptions,
    /,
    ray: str | None,
    diff: bool,
    **options: Any,
) -> int:
    """Patch SGLang: all files or none.

    Installs the core, with the extras that are installed already or added by --with.
    Patches of an older version are replaced, starting from the
    original files. If nothing has to change, nothing is written. Other changes to the
    sources are kept. Files are replaced, never written into, so that environments that
    share them by hard links stay as they are.

    With --ray, one task per node does this on all nodes at once; agentcore-patches
    has to be installed on each of them. If it fails on one node, the others are still
    patched.

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
      agentcore-patch apply --with vllm-api
          add the extra vllm-api
      agentcore-patch apply --ray auto
          patch every node of the Ray cluster that this machine is in
    """
    if ray is None:
        result = api.apply(**options, diff=diff, notify=_notify(asked))
        _show(asked, result, lambda output: output.applied(result))
        return 0
    if diff:
        raise UsageError("--diff cannot be used with --ray: it shows one SGLang only.")
    if options.pop("unlisted"):
        raise UsageError(
            "--unlisted cannot be used with --ray: try it on one node first."
        )
    from agentcore_patches import cluster

    results = cluster.apply_on_ray(ray, **options)
    _show(asked, results, lambda output: output.on_ray(results, applied=True))
    _show_errors(asked, results)
    return int(any(result.error for result in results))


@commands.command(short_help="Show which patches are in place.")
@_target
@_ray
@click.option(
    "--check",
    is_flag=True,
    help="Exit 1 unless all that was applied is in place and up to date.",
)
@_detail
@_json
@click.pass_obj
def status(
    asked: SharedOptions,
    /,
    ray: str | None,
    check: bool,
    **options: Any,
) -> int:
    """Show which patches are in place, and what else was changed.

    There is a row for each file that was edited or replaced since it was patched, or
    whose source is not as released (SOURCE); with -v for every file that patches
    change. The source is compared with the hashes in the wheel's RECORD; an editable
    install has none.

    Nothing is written. Unfinished work of a killed command is reported; the next apply
    or revert finishes or undoes it.

    \b
    Examples:
      agentcore-patch status
      agentcore-patch status --check
          exit 1 unless all that was applied is in place
      agentcore-patch status --json | jq .complete
      agentcore-patch status --check --ray 10.0.0.1:6379
          exit 1 unless this holds on every node
    """
    if ray is None:
        result = api.status(**options)
        _show(asked, result, lambda output: output.status(result))
        return 1 if check and not result.complete else 0
    from agentcore_patches import cluster
    from agentcore_patches.cluster.results import are_complete

    results = cluster.status_on_ray(ray, **options)
    _show(asked, results, lambda output: output.on_ray(results, applied=False))
    _show_errors(asked, results)
    failed = any(node.error for node in results)
    return int(failed or (check and not are_complete(results)))


@commands.command(short_help="Restore the original files.")
@_target
@click.option(
    "--force",
    is_flag=True,
    help="Also restore files that were changed since; those changes are lost.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Report what would be restored; write nothing to SGLang's files.",
)
@_lock_timeout
@_detail
@_json
@click.pass_obj
def revert(asked: SharedOptions, /, **options: Any) -> None:
    """Restore every byte that was there before the first apply.

    No file of this command is left behind. If a file was changed since it was patched,
    nothing is restored (exit 4), unless --force.

    \b
    Examples:
      agentcore-patch revert
      agentcore-patch revert --dry-run -v
          show which files would be restored
      agentcore-patch revert --sglang-dir /sgl-workspace/sglang/python/sglang
    """
    result = api.revert(**options, notify=_notify(asked))
    _show(asked, result, lambda output: output.reverted(result))


@commands.command("list", short_help="List the core and the extras.")
@_target
@click.option("--edits", is_flag=True, help="List their hooks instead.")
@click.option(
    "--release", metavar="X", help="With --edits: for this SGLang release only."
)
@_plain
@_json
@click.pass_obj
def list_patches(
    asked: SharedOptions, /, edits: bool, release: str | None, **target: Any
) -> None:
    """List the core and the extras: what each gives, and whether it is in place.

    The number of files is for your SGLang. If this Python has no SGLang that can be
    patched, it is for the newest supported release.

    With --edits, list each hook with its name, which appears above the change in
    SGLang's file, its reason, and its change in each release: in all of them, in
    --release, or in the release of the SGLang that --sglang-dir or --python names.

    \b
    Examples:
      agentcore-patch list
      agentcore-patch list --edits --release 0.5.15
    """
    from agentcore_patches import listing

    if edits:
        if asked.target and release is not None:
            given = " and ".join(asked.target)
            raise UsageError(f"Give either --release or {given}, not both.")
        if asked.target:
            release = find(**target).require_release()
        places = listing.listed_edits(release)
        _show(asked, places, lambda output: output.edits(places))
        return
    if release is not None:
        raise UsageError("Give --release with --edits.")
    result = listing.available(**target)
    _show(asked, result, lambda output: output.patches(result))


@commands.command("help", short_help="Show the help of a command or topic.")
@click.argument(
    "name",
    metavar="[COMMAND | exit-codes | environment]",
    required=False,
    shell_complete=lambda context, option, incomplete: [
        name for name in [*commands.commands, *TOPICS] if name.startswith(incomplete)
    ],
)
@_plain
@click.pass_obj
def show_help(asked: SharedOptions, name: str | None) -> None:
    """Show the help of a command, as COMMAND --help does, or of a topic.

    \b
    Topics:
      exit-codes   the meaning of each exit code
      environment  the environment variables that are read
    """
    if name in TOPICS:
        print_text(TOPICS[name], color=asked.color)
        return
    commands.main(
        [*([name] if name else []), "--help"], prog_name=PROGRAM, standalone_mode=False
    )


@commands.command(short_help="Print the shell script for tab completion.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@_plain
@click.pass_obj
def completion(asked: SharedOptions, shell: str) -> None:
    """Print the script that a shell evaluates for tab completion.

    \b
    Examples:
      eval "$(agentcore-patch completion bash)"
          in ~/.bashrc
      eval "$(agentcore-patch completion zsh)"
          in ~/.zshrc
      agentcore-patch completion fish | source
          in ~/.config/fish/config.fish
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found
    variable = f"_{PROGRAM.replace('-', '_').upper()}_COMPLETE"
    print_text(found(commands, {}, PROGRAM, variable).source().strip())


@commands.command(short_help="Show a page of the documentation.")
@click.argument(
    "topic",
    required=False,
    shell_complete=lambda context, option, incomplete: [
        page.topic for page in pages() if page.topic.startswith(incomplete)
    ],
)
@_plain
@click.pass_obj
def docs(asked: SharedOptions, topic: str | None) -> None:
    """Show a page of the documentation, which is part of this package.

    Without a topic, list the topics. On a terminal a page is shown in a pager.

    \b
    Examples:
      agentcore-patch docs
      agentcore-patch docs troubleshooting
    """
    if topic:
        from agentcore_patches.command.page_output import show_page

        show_page(page(topic), asked.color)
    else:
        text = _text_output(asked, sys.stdout).topics(pages())
        print_text(text, color=asked.color)


def _show(
    asked: SharedOptions, result: object, text: Callable[[ResultOutput], str]
) -> None:
    """Print a result as JSON, or as `text` renders it; nothing with --quiet."""
    if asked.as_json:
        _print_json(result)
    elif asked.detail != "quiet":
        print_text(text(_text_output(asked, sys.stdout)), color=asked.color)


def _show_errors(asked: SharedOptions, results: Sequence[NodeResult]) -> None:
    """Print why nodes failed, if --quiet hides everything else."""
    errors = _text_output(asked, sys.stderr).node_errors(results)
    if errors and asked.detail == "quiet" and not asked.as_json:
        print_text(errors, sys.stderr, asked.color)


def _print_json(result: object) -> None:
    from agentcore_patches.shell.json_output import document

    print_text(document(result))


def _text_output(asked: SharedOptions, stream: TextIO) -> ResultOutput:
    from agentcore_patches.command.result_output import ResultOutput

    return ResultOutput.on(stream, asked)


def _notify(asked: SharedOptions) -> Callable[[str], None]:
    """Return a function that prints a line of progress on stderr."""

    def notify(line: str) -> None:
        if asked.detail != "quiet":
            text = _text_output(asked, sys.stderr).wrapped(f"{PROGRAM}: {line}")
            print_text(text, sys.stderr, asked.color)

    return notify
