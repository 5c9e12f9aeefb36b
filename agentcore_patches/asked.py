"""What the user asked for by the options that many commands share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import click

Detail: TypeAlias = Literal["quiet", "normal", "verbose"]
Color: TypeAlias = Literal["auto", "always", "never"]


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


def split_names(
    context: click.Context, option: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    """The callback of an option that takes names: repeated, or with commas between."""
    names = (name.strip() for value in values for name in value.split(","))
    return tuple(name for name in names if name)


def complete_names(known: tuple[str, ...], incomplete: str) -> list[str]:
    """What a shell may put in place of a list of names that is not complete."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in known if name.startswith(last)]


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
