"""The command `agentcore-patch verify`: parse, call, show."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from agentcore_patches.errors import (
    ServerError,
    UsageError,
    refuse_unknown,
)
from agentcore_patches.shell.exit_codes import failure_of
from agentcore_patches.shell.options import (
    COLOR,
    QUIET,
    SharedOptions,
    names_option,
    verbose_option,
)
from agentcore_patches.shell.terminal import (
    Color,
    has_colours,
    print_text,
    terminal_width,
)
from agentcore_patches.shell.text_output import TextOutput

from . import checks, contract, runner
from .checks.logprobs import MEANINGS
from .documents import (
    render_annotations,
    render_json,
    render_junit,
    render_markdown,
)
from .launching import Launching
from .options import (
    DEVICE,
    JSON,
    PYTHON,
    SGLANG_DIR,
    STARTUP_TIMEOUT,
    PathOption,
    SGLangCommand,
    assert_writable,
    file_option,
    write_file,
)
from .profiles import PROFILES
from .progress import progress_on
from .report import page_of, stream_console
from .results import Report
from .signals import signals_as_exceptions

LAUNCHING = {each.name: each.default for each in fields(Launching)} | {"log": None}
"""The options for a server that `verify` launches, with their defaults."""
del LAUNCHING["model"]


@click.command(
    cls=SGLangCommand,
    short_help="Check the answers of a real server.",
)
@click.option(
    "--model",
    metavar="PATH_OR_ID",
    help="The model to serve. `scripted` is a tiny model that this command trains once "
    "and caches: it needs no download and exercises every check.",
)
@click.option(
    "--base-url",
    metavar="URL",
    help="Check a server that is already running. Checks that need a launch option are "
    "skipped.",
)
@click.option("--api-key", metavar="KEY", help="The API key of that server.")
@click.option(
    "--profile",
    type=click.Choice([profile.name for profile in PROFILES]),
    metavar="NAME",
    help="How to ask that server for token IDs: agentcore, vllm, sglang or token-names. "
    "Default: found by asking.",
)
@click.option(
    "--tokenizer",
    type=PathOption(),
    metavar="PATH",
    help="The model's tokenizer.json, or its folder, if that server has no /detokenize. "
    "Needs `pip install 'agentcore-patches[audit]'`.",
)
@names_option(
    "--level",
    "levels",
    known=lambda: contract.LEVELS,
    help="Judge only these levels of the contract, and require each: ids, logprobs, "
    "token-in, turns, weights.",
)
@click.option(
    "--expect-logprobs",
    type=click.Choice(MEANINGS),
    metavar="MEANING",
    help="What logprobs must mean: raw, scaled or renormalized. Default: it is only "
    "reported.",
)
@PYTHON
@SGLANG_DIR
@DEVICE
@names_option(
    "--check",
    "names",
    known=lambda: checks.NAMES,
    help="Run only these checks. Commas between names, or repeat the option. Default: "
    "all.",
)
@click.option("--list-checks", is_flag=True, help="List the checks and exit.")
@click.option(
    "--tool-call-parser",
    metavar="NAME",
    help="SGLang's tool-call parser for the model. Default: detected.",
)
@click.option(
    "--reasoning-parser",
    metavar="NAME",
    help="SGLang's reasoning parser for the model. Default: detected.",
)
@STARTUP_TIMEOUT
@click.option(
    "--strict",
    is_flag=True,
    help="Also fail if a check was not exercised.",
)
@JSON
@QUIET
@verbose_option("Show what each check saw, even if it passed.")
@COLOR
@file_option("--json-file", "Write the report as JSON.")
@file_option("--junit", "Write the report as JUnit XML, for CI.")
@file_option("--markdown", "Write the verdicts on the levels as a Markdown table.")
@file_option("--svg", "Write the table as an SVG picture.")
@file_option(
    "--log",
    "Write the server's output. Default: a temporary file, kept if the run fails.",
)
@click.argument("server_args", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
def verify(
    asked: SharedOptions,
    /,
    names: tuple[str, ...],
    list_checks: bool,
    as_json: bool,
    json_file: Path | None,
    junit: Path | None,
    markdown: Path | None,
    svg: Path | None,
    known: tuple[str, ...] = checks.NAMES,
    **options: Any,
) -> int:
    """Check on a real server that it gives exact token IDs and logprobs.

    Launches a patched SGLang on a free port of 127.0.0.1, sends it the kinds of requests
    that RL trainers send, compares the token IDs and logprobs of the answers, and stops
    the server. Everything after -- is passed to sglang.launch_server.

    A server at --base-url may be any: vLLM, stock SGLang and gateways are judged by the
    numbered rules of a token-exact server, in levels (`agentcore-patch docs token-exact`).

    A check is `not exercised` if the model did not do what the check is about, for
    example called no tool. It is `inconclusive` if the engine is not deterministic, so
    that two answers cannot be compared. Neither counts as passed.

    \b
    Examples:
      agentcore-patch verify --model scripted
          on any machine, without a download
      agentcore-patch verify --model Qwen/Qwen3-0.6B --junit verify.xml
          with the model that you train, in CI
      agentcore-patch verify --model /models/big -- --tp 8 --stream-output
          with the server options that you use
      agentcore-patch verify --base-url http://127.0.0.1:30000 --api-key KEY
          a server that is already running
      agentcore-patch verify --model scripted --check logprobs,tools
          only these two checks
      agentcore-patch verify --model scripted --json | jq .passed

    \b
    Exit codes:
      0  a check or a rule passed, none failed or was inconclusive, and each level
         that --level names holds
      1  otherwise; or SGLang is not patched, and then no server is started
      2  usage
      3  SGLang was not found, or its version is not supported
      5  a file could not be read or written
      6  the server did not start, or died

    \b
    Environment variables:
      GITHUB_ACTIONS  if `true`, failures also go to stderr as annotations
      HF_HUB_OFFLINE  1: take a named model from the cache, never download it
      NO_COLOR        if set, no colours, as with TERM=dumb; --color overrides it
      XDG_CACHE_HOME  where the scripted model is kept. Default: ~/.cache
    The server also gets all other variables.
    """
    if options["sglang_dir"]:
        asked.target.pop("--python", None)
    refuse_unknown(names, known, "check", "checks")
    refuse_unknown(options["levels"], contract.LEVELS, "level", "levels")
    if list_checks:
        _list_checks(known, as_json=as_json)
        return 0
    run_options = runner.Options(
        checks=tuple(name for name in known if not names or name in names),
        **options,
    )
    _refuse_conflicting(run_options)
    files: tuple[tuple[Path | None, Callable[[Report], str]], ...] = (
        (json_file, render_json),
        (junit, render_junit),
        (markdown, render_markdown),
        (svg, lambda report: page_of(report).svg()),
    )
    for path in (run_options.log, *(path for path, _ in files)):
        if path is not None:
            assert_writable(path)
    quiet = asked.detail == "quiet"
    console = Console(quiet=True) if quiet else stream_console(sys.stderr, asked.color)
    with signals_as_exceptions(), progress_on(console) as progress:
        report = runner.run(run_options, progress)
    for path, render in files:
        if path is not None:
            write_file(path, render(report))
    if as_json or not quiet or report.exit_code:
        verbose = asked.detail == "verbose"
        _print(report, asked.color, as_json=as_json, verbose=verbose)
    if os.environ.get("GITHUB_ACTIONS") == "true" and report.exit_code:
        print_text(render_annotations(report), sys.stderr)
    return report.exit_code


def _list_checks(known: tuple[str, ...], *, as_json: bool) -> None:
    summaries = {name: checks.get(name).summary for name in known}
    if as_json:
        listed = [{"name": name, "summary": text} for name, text in summaries.items()]
        print_text(json.dumps({"checks": listed}, indent=2))
    else:
        width = max(map(len, summaries))
        lines = (f"{name:{width}}  {text}" for name, text in summaries.items())
        print_text("\n".join(lines))


def _refuse_conflicting(options: runner.Options) -> None:
    if options.server_args and not options.server_args[0].startswith("-"):
        raise UsageError(
            f"Unexpected argument {options.server_args[0]}.",
            hint="Options of SGLang go after `--`.",
        )
    if options.base_url is None:
        if options.model is None:
            raise click.UsageError("Give --model, or --base-url of a running server.")
        if options.profile or options.tokenizer:
            raise UsageError(
                "--profile and --tokenizer are for a server that --base-url names."
            )
        return
    if not options.base_url.startswith(("http://", "https://")):
        raise click.UsageError(
            f"--base-url {options.base_url}: expected a URL such as http://127.0.0.1:30000."
        )
    unused = [
        name.upper() if name == "server_args" else f"--{name.replace('_', '-')}"
        for name, default in LAUNCHING.items()
        if getattr(options, name) != default
    ]
    if unused:
        raise UsageError(
            "With --base-url no server is launched, so these have no effect: "
            f"{', '.join(unused)}.",
            hint="Leave them out.",
        )


def _print(report: Report, color: Color, *, as_json: bool, verbose: bool) -> None:
    """Print the report on stdout and, unless that is JSON, the error on stderr."""
    if as_json:
        print_text(render_json(report))
        return
    if report.unpatched:
        print_text(f"FAILED: {report.unpatched}")  # A line to copy, however wide.
    else:
        page_of(report, verbose=verbose).print(color)
    if report.error is not None:
        output = TextOutput(
            terminal_width(sys.stderr), colour=has_colours(sys.stderr, color)
        )
        program = click.get_current_context().command_path
        failure = failure_of(ServerError(report.error, report.hint), program)
        print_text(output.failure(failure), sys.stderr, color)
