"""Options that many commands share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, TypeVar

import click

from agentcore_patches._version import full_version
from agentcore_patches.shell.terminal import Color

Detail: TypeAlias = Literal["quiet", "normal", "verbose"]

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass
class SharedOptions:
    """The values of the shared options.

    Attributes:
        target: the options that name the SGLang, with their values as given.
        detail: how much is shown.
        color: whether the output has colours.
        as_json: whether the output is one JSON document.
    """

    target: dict[str, str] = field(default_factory=dict)
    detail: Detail = "normal"
    color: Color = "auto"
    as_json: bool = False


def remember_target(context: click.Context, option: click.Parameter, value: Any) -> Any:
    """The callback of an option that names the SGLang."""
    if value is not None:
        context.ensure_object(SharedOptions).target[option.opts[0]] = str(value)
    return value


def remember(context: click.Context, option: click.Parameter, value: Any) -> None:
    """The callback of an option that is named as an attribute of `SharedOptions`."""
    if value is not None:
        setattr(context.ensure_object(SharedOptions), str(option.name), value)


def _show_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        click.echo(f"{context.info_name} {full_version()}")
        context.exit()


def names_option(
    *names: str, known: Callable[[], tuple[str, ...]], help: str
) -> Callable[[Command], Command]:
    """An option that takes names: repeated, or separated by commas.

    A shell completes the last one from the `known` names.
    """

    def split(
        context: click.Context, option: click.Parameter, values: tuple[str, ...]
    ) -> tuple[str, ...]:
        given = (name.strip() for value in values for name in value.split(","))
        found = tuple(name for name in given if name)
        if values and not found:
            raise click.UsageError(f"{option.opts[0]} needs a name.", context)
        return found

    def complete(_: object, __: object, incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in known() if name.startswith(last)]

    return click.option(
        *names,
        metavar="NAMES",
        multiple=True,
        callback=split,
        shell_complete=complete,
        help=help,
    )


def _color(context: click.Context, option: click.Parameter, value: Color) -> None:
    """The callback of --color, which click's own output also follows."""
    remember(context, option, value)
    if value != "auto":
        context.color = value == "always"


def _detail(context: click.Context, option: click.Parameter, given: bool) -> None:
    """The callback of -q and -v, which exclude each other."""
    asked = context.ensure_object(SharedOptions)
    if not given:
        return
    if asked.detail not in ("normal", option.name):
        raise click.UsageError("-q and -v cannot be used together.", context)
    asked.detail = "quiet" if option.name == "quiet" else "verbose"


VERSION = click.option(
    "-V",
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
"""The option of every program that shows its version."""

COLOR = click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    expose_value=False,
    callback=_color,
    help="Whether to use colours. auto: on a terminal, unless NO_COLOR is set.",
)
"""The option of every command that switches colours on or off."""

QUIET = click.option(
    "-q",
    "--quiet",
    is_flag=True,
    expose_value=False,
    callback=_detail,
    help="Print nothing but errors.",
)
"""The option of every command that prints nothing but errors."""


def verbose_option(help: str) -> Callable[[Command], Command]:
    """The option of every command that prints more; `help` describes the output."""
    return click.option(
        "-v",
        "--verbose",
        is_flag=True,
        expose_value=False,
        callback=_detail,
        help=help,
    )
