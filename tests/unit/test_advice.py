"""Commands that messages advise, and suggestions for names."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import agentcore_patches
import agentcore_verify
from agentcore_patches import api, cluster, listing
from agentcore_patches.command import cli
from agentcore_patches.errors import (
    PROGRAM,
)
from agentcore_patches.shell.advice import with_target
from agentcore_patches.shell.options import SharedOptions
from agentcore_verify import runner

_ADVISED = re.compile(rf"`(?:{PROGRAM}|{{PROGRAM}}) ([a-z][^`]*)`")
_DOCSTRING = re.compile(r'^ *""".*?"""$', re.MULTILINE | re.DOTALL)
_FIELD = re.compile(r"\{[^}]*\}")

TARGETS: list[dict[str, str]] = [
    {},
    {"--sglang-dir": "/x/sglang"},
    {"--python": "/x/python"},
    {"--ray": "auto"},
    {"--ray": "auto", "--python": "/x/python"},
]


def advised() -> list[str]:
    """Return the commands in the texts of the command and of landing code."""
    found: dict[str, None] = {}
    for package in (agentcore_patches, agentcore_verify):
        for path in sorted(Path(str(package.__file__)).parent.rglob("*.py")):
            # This joins the parts of a string, and only docstrings keep their quotes.
            source = ast.unparse(ast.parse(path.read_text("utf-8")))
            for command in _ADVISED.findall(_DOCSTRING.sub("", source)):
                filled = command.replace("{failure.page}", "troubleshooting")
                found[_FIELD.sub("token-ids", filled)] = None
    return [*found]


ADVISED = advised()


def test_commands_are_found_in_messages() -> None:
    assert {"apply", "revert --force", "apply --unlisted"} <= {*ADVISED}


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: " ".join(target) or "-")
@pytest.mark.parametrize("command", ADVISED)
def test_an_advised_command_is_valid(
    command: str, target: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Reached(BaseException):
        """The command line was accepted."""

    def reach(*args: Any, **options: Any) -> Any:
        raise Reached

    for module, names in (
        (api, ("apply", "status", "revert")),
        (cluster, ("apply_on_ray", "status_on_ray")),
        (listing, ("available", "listed_edits")),
        (runner, ("run",)),
    ):
        for name in names:
            monkeypatch.setattr(module, name, reach)
    text = with_target(f"`{PROGRAM} {command}`", target)
    args = shlex.split(text.strip("`"))[1:]
    if args[0] in ("help", "docs") or args[-1] == "--help":
        assert cli.main(args) == 0
        return
    with pytest.raises(Reached):
        cli.commands.main(args, standalone_mode=False, obj=SharedOptions())


def test_advised_edits_belong_to_the_named_sglang(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str | None] = []
    monkeypatch.setattr(listing, "listed_edits", asked.append)
    monkeypatch.setattr(cli, "_show", lambda *shown: None)
    target = ["--sglang-dir", str(package)]
    assert cli.main(["list", "--edits", *target]) == 0
    assert cli.main(["list", "--edits"]) == 0
    assert asked == ["0.5.9", None]
    unsupported = ["--sglang-dir", str(package.parent)]
    assert cli.main(["list", "--edits", *unsupported]) == 3


@pytest.mark.parametrize(
    ("text", "target", "expected"),
    [
        (
            "`agentcore-patch status`",
            {"--python": "my env/bin/python"},
            "`agentcore-patch status --python 'my env/bin/python'`",
        ),
        (
            "`agentcore-patch status --ray 10.0.0.1:6379` or `agentcore-patch revert`",
            {"--ray": "auto", "--sglang-dir": "/x"},
            "`agentcore-patch status --ray 10.0.0.1:6379 --sglang-dir /x` or "
            "`agentcore-patch revert --sglang-dir /x`",
        ),
    ],
)
def test_advised_commands_have_the_users_target(
    text: str, target: dict[str, str], expected: str
) -> None:
    assert with_target(text, target) == expected
    assert with_target(expected, target) == expected
