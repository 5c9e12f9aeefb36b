"""What the user asked for by the options that many commands share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, TypeVar

import click

Detail: TypeAlias = Literal["quiet", "normal", "verbose"]
Color: TypeAlias = Literal["auto", "always", "never"]

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass
class Asked:
    """What the user asked for.

    Attributes:
        target: the options that name the SGLang, with their values as they were given.
        detail: how much is shown.
        color: whether what is shown has colours.
        as_json: whether one JSON document is shown.
    """

    target: dict[str, str] = field(default_factory=dict)
    detail: Detail = "normal"
    color: Color = "auto"
    as_json: bool = False


def remember_target(context: click.Context, option: click.Parameter, value: Any) -> Any:
    """The callback of an option that names the SGLang."""
    if value is not None:
        context.ensure_object(Asked).target[option.opts[0]] = str(value)
    return value


def remember(context: click.Context, option: click.Parameter, value: Any) -> None:
    """The callback of an option that is named as an attribute of `Asked`."""
    if value is not None:
        setattr(context.ensure_object(Asked), str(option.name), value)


def names_option(
    *names: str, known: Callable[[], tuple[str, ...]], help: str
) -> Callable[[Command], Command]:
    """An option that takes names: repeated, or with commas between.

    A shell completes the last one by those that are `known`.
    """

    def split(_: object, __: object, values: tuple[str, ...]) -> tuple[str, ...]:
        given = (name.strip() for value in values for name in value.split(","))
        return tuple(name for name in given if name)

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


COLOR = click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    expose_value=False,
    callback=remember,
    help="Whether to use colours. auto: on a terminal, unless NO_COLOR is set.",
)
"""The option of commands that print in colours."""
