"""`serve` rejects bad options before it starts a server, and shows a request."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from agentcore_patches.command.cli import main
from agentcore_verify.serve import request_to_try
from tests.unit.small_sglang import build


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        ((), 2, "hint: See `agentcore-patch serve --help`."),
        (("--model", "scripted", "--tp", "2"), 2, "hint: Options of SGLang go after"),
        (("--model", "scripted", "--", "--port", "3"), 2, "Give --port before `--`."),
        (("--model", "/no/such/model"), 2, "The model /no/such/model does not exist."),
        (("--model", "scripted", "-q", "-v"), 2, "cannot be used together"),
    ],
)
def test_bad_options_are_refused(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    args: tuple[str, ...],
    code: int,
    says: str,
) -> None:
    target = ("--sglang-dir", str(build(tmp_path)), "--port", "0")
    assert main(["serve", *target, *args]) == code
    shown = capsys.readouterr()
    assert shown.out == "" and says in shown.err


@pytest.mark.parametrize("key", [None, "KEY"])
def test_the_example_request_is_one_shell_command(key: str | None) -> None:
    words = shlex.split(request_to_try("http://h:1", key).replace("\\\n", " "))
    assert words[:3] == ["curl", "-s", "http://h:1/v1/chat/completions"]
    assert ("Authorization: Bearer KEY" in words) is (key is not None)
