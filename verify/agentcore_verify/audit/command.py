"""The command `agentcore-patch audit`: parse, call, show."""

from __future__ import annotations

from pathlib import Path

import click

from agentcore_patches.errors import UsageError
from agentcore_patches.shell.options import COLOR, QUIET, SharedOptions, verbose_option
from agentcore_patches.shell.terminal import print_text

from ..options import JSON, PathOption, assert_writable, file_option, write_file
from .auditor import Auditor
from .lines import STDIN, turns_in
from .report import page_of, render_json
from .tokens import Tokens


@click.command(short_help="Look for defects in recorded rollouts.")
@click.option(
    "--tokenizer",
    type=PathOption(),
    metavar="PATH",
    help="The model's tokenizer.json, or its folder. Without it, texts are "
    "not compared with IDs. Needs `pip install 'agentcore-patches[audit]'`.",
)
@click.option(
    "--max-drift",
    type=click.FloatRange(0, 1),
    default=0.0,
    show_default=True,
    metavar="SHARE",
    help="The share of tokens that may differ when the text is re-tokenized.",
)
@JSON
@file_option("--svg", "Write the table as an SVG picture.")
@QUIET
@verbose_option("Explain each finding, even if it was not found.")
@COLOR
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.pass_obj
def audit(
    asked: SharedOptions,
    /,
    files: tuple[str, ...],
    tokenizer: str | None,
    max_drift: float,
    as_json: bool,
    svg: str | None,
) -> int:
    """Report what a trainer would learn from recorded rollouts.

    A line of a file is a request with its response, as JSON: {"request": ...,
    "response": ...}, or {"request": ..., "chunks": [...]} of a stream, with "session"
    if it has one. The answers are those of chat completions, completions, messages or
    responses, from SGLang or vLLM. Files of rllm-model-gateway 0.1.0 (its database, or
    traces as JSON lines) and of verifiers (results.jsonl, traces.jsonl) are also read.
    FILE may be `-` for stdin.

    Neither SGLang nor a server is needed. Files are read line by line.

    \b
    Examples:
      agentcore-patch audit rollouts.jsonl
      agentcore-patch audit rollouts.jsonl --tokenizer /models/Qwen3-8B
          also compare texts with IDs
      zcat rollouts.jsonl.gz | agentcore-patch audit - --json | jq .clean
      agentcore-patch audit rollouts.jsonl --tokenizer DIR --max-drift 0.001
          in CI: fail if more than one token in 1,000 drifts

    \b
    Exit codes:
      0  clean
      1  something was found
      2  usage, or a line that is not a recorded turn; the message names it
      5  a file could not be read or written
    """
    if files.count(STDIN) > 1:
        raise UsageError("stdin (`-`) can be read only once.")
    if svg is not None:
        assert_writable(Path(svg))
    tokens = None if tokenizer is None else Tokens.load(Path(tokenizer))
    auditor = Auditor(tokens)
    for file in files:
        for place, turn in turns_in(file):
            auditor.add(turn, place, source=file)
    result = auditor.result(files, tokenizer, max_drift)
    if not result.turns:
        raise UsageError(f"No turn is recorded in {', '.join(files)}.")
    if svg is not None:
        write_file(Path(svg), page_of(result).svg())
    if as_json:
        print_text(render_json(result))
    elif asked.detail != "quiet" or result.exit_code:
        page_of(result, verbose=asked.detail == "verbose").print(asked.color)
    return result.exit_code
