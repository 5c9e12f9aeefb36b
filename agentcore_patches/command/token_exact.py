"""The program `token-exact`: `verify` and `audit` for any server, without SGLang."""

from __future__ import annotations

from typing import Any

import click

from agentcore_patches.command.cli import main
from agentcore_patches.shell.options import VERSION
from agentcore_verify import checks
from agentcore_verify.audit.command import audit
from agentcore_verify.command import LAUNCHING, verify

PROGRAM = "token-exact"


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@VERSION
def commands() -> None:
    """Check that a server, or recorded rollouts, have exact token IDs and logprobs."""


@click.pass_context
def _verify(context: click.Context, /, **options: Any) -> Any:
    """Judge a running server by the numbered rules of a token-exact server.

    Sends the kinds of requests that RL trainers send to vLLM, SGLang or a gateway, and
    gives a verdict on each rule: pass, fail, unsupported (the server cannot be asked), not
    exercised (the model did not do what the rule is about), or inconclusive (two identical
    requests got different answers). A level is token-exact if none of its rules fails.

    \b
    Examples:
      token-exact verify --base-url http://127.0.0.1:8000
      token-exact verify --base-url URL --level ids,logprobs --junit verify.xml
          in CI: both levels must hold
      token-exact verify --base-url URL --level logprobs --expect-logprobs raw

    \b
    Exit codes:
      0  every level that the server offers holds, and each one of --level
      1  a rule fails or is inconclusive, no level is offered, or with --strict a rule
         was not exercised
      2  usage
      5  a file could not be written
      6  no server answers
    """
    if not (options["base_url"] or options["list_checks"]):
        raise click.UsageError("Give --base-url.")
    judging = tuple(name for name in checks.NAMES if checks.get(name).rules)
    return context.invoke(verify, **options, known=judging)


OWN = {
    "model": click.Option(
        ["--model"],
        metavar="NAME",
        help="The name of the model in requests. Default: the first one that the server "
        "lists.",
    ),
    "base_url": click.Option(
        ["--base-url"], metavar="URL", help="The server, with or without /v1."
    ),
}
"""The options that mean something else where no server is launched."""

commands.add_command(
    click.Command(
        "verify",
        params=[
            OWN.get(str(one.name), one)
            for one in verify.params
            if one.name not in LAUNCHING
        ],
        callback=_verify,
        help=_verify.__doc__,
        short_help="Judge a running server.",
    )
)
commands.add_command(audit)


def run() -> int:
    return main(group=commands, program=PROGRAM)
