"""`serve` rejects bad options before it starts a server."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from agentcore_patches.command.cli import main
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


def test_a_port_in_use_is_an_error_with_a_hint(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        args = ("--sglang-dir", str(build(tmp_path)), "--port", port)
        assert main(["serve", "--model", "scripted", *args]) == 6
    assert capsys.readouterr().err.startswith(
        f"error: Port {port} is in use.\nhint: Choose another --port; 0 takes a free one."
    )
