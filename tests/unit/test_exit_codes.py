"""Failing commands: the exit code, and the message on stderr or as a document."""

from __future__ import annotations

import os
import re
import shutil
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agentcore_patches._version import full_version
from agentcore_patches.installs.install import find
from agentcore_patches.state import transaction
from tests.helpers.documents import Error, mismatches
from tests.helpers.trees import contents, photograph
from tests.unit.running import Run, program
from tests.unit.small_sglang import SERVING


def spoil_version(package: Path) -> None:
    (package / "version.py").write_text('__version__ = "0.6.1"\n')
    shutil.rmtree(package.parent / "sglang-0.5.9.dist-info")


def spoil_shape(package: Path) -> None:
    (package / SERVING).write_text("def reply(): ...\n")


def spoil_links(package: Path) -> None:
    (package / SERVING).unlink()
    (package / SERVING).symlink_to("serving.py")


CODES = {"usage": 2, "unsupported-target": 3, "source-conflict": 4, "access": 5}

USAGE = {
    "aply": "No such command 'aply'",
    "--no-such": "hint: See `agentcore-patch --help`",
    "apply --fast": "No such .*See `agentcore-patch apply --h",
    "apply --with no": r"no\.\nhint: The extras are beta, all",
    "apply --with ,": "--with needs a name",
    "apply --without core": "no extra named core",
    "apply --python python": "either --sglang-dir or --python",
    "apply --lock-timeout -1": "x>=0",
    "apply --lock-timeout nan": "not a number",
    "apply -q -v": "-q and -v cannot be used together",
    "apply --ray auto --diff": "--diff cannot be used with --ray",
    "apply --ray local": "'local' is not the address of a running Ray",
    "status --ray auto --sglang-dir here": "give an absolute one",
    "list too much": "unexpected extra arguments",
    "list --release 0.5.9": "Give --release with --edits",
    "list --edits --release 0.6": "no release named 0.6",
    "list --edits --release 0.5.9 --sglang-dir x": "either --release or --sglang-dir",
    "docs trouble-shooting": r"Did you mean troubleshooting\?",
    "verify": "hint: See `agentcore-patch verify --help`",
    "audit": "hint: See `agentcore-patch audit --help`",
    "serve": "hint: See `agentcore-patch serve --help`",
    "serve --model scripted --tp 2": "hint: Options of SGLang go after",
    "serve --model scripted -- --port 3": "Give --port before `--`",
    "serve --model /no/such/model": "The model /no/such/model does not exist",
    "serve --model scripted -q -v": "cannot be used together",
}
FAILURES = [
    (None, "audit /no/such/file", "access", "/no/such/file"),
    (None, "apply --ray 127.0.0.1:1", "access", "at 127.0.0.1:1: .*Connection refused"),
    (None, "status --ray ray.invalid:1", "access", "at ray.invalid:1: .* not known"),
    *((None, command, "usage", says) for command, says in USAGE.items()),
    (
        spoil_version,
        "apply",
        "unsupported-target",
        r"0.6.1 .* is not supported\.\nhint: agentcore-patch .* supports SGLang 0.5.8 to",
    ),
    (
        spoil_shape,
        "apply",
        "source-conflict",
        "serving.py: .* `answer` .* Nothing was written",
    ),
    (spoil_links, "apply", "access", "serving.py"),
    (spoil_links, "status", "access", "serving.py"),
]


@pytest.mark.parametrize(("spoil", "command", "kind", "says"), FAILURES)
def test_errors_are_an_error_and_a_hint_or_one_document(
    run: Run,
    package: Path,
    spoil: Callable[[Path], None] | None,
    command: str,
    kind: str,
    says: str,
) -> None:
    first, *more = command.split()
    code = CODES[kind]
    if first == "serve":
        more = ["--sglang-dir", str(package), *more]
    if spoil is not None:
        spoil(package)
    before = contents(package) if spoil is not spoil_links else {}

    told = run(first, *more)
    scripted = run(first, "--json", *more)

    assert (told.code, told.out) == (code, "")
    assert re.fullmatch("error: .*\n(hint: .*\n)?", told.err)
    assert re.search(says, told.err, re.DOTALL)
    assert (scripted.code, scripted.err) == (code, "")
    assert mismatches(scripted.document, Error) == []
    error = scripted.document["error"]
    assert (error["kind"], error["exit_code"]) == (kind, code)
    if kind != "usage":
        assert error["message"] in told.err.replace("\nhint:", "")
    assert error["message"].endswith(error["hint"])
    assert error["page"] == ("" if kind == "usage" else "troubleshooting")
    assert spoil is spoil_links or contents(package) == before


def test_a_missing_ray_is_reported(tmp_path: Path) -> None:
    (tmp_path / "ray.py").write_text("raise ImportError('no Ray here')")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        ran = program("apply", "--ray", address, PYTHONPATH=str(tmp_path))

    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("error: --ray needs Ray, and ")
    assert "(no Ray here)" in ran.stderr and ran.stderr.count("\n") == 2
    assert "`pip install 'agentcore-patches[ray]'`" in ran.stderr


def test_a_port_in_use_is_an_error_with_a_hint(run: Run, package: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        target = ("--sglang-dir", str(package), "--port", port)
        ran = run("serve", "--model", "scripted", *target)
    assert ran.code == 6
    assert ran.err.startswith(
        f"error: Port {port} is in use.\nhint: Choose another --port; 0 takes a free one."
    )


def test_a_lock_timeout_names_the_holder(run: Run, package: Path) -> None:
    run("apply")
    who = f"another agentcore-patch (process {os.getpid()})"
    with transaction.locked(find(package)):
        before = photograph(package)
        for command in (["apply", "--with", "beta"], ["revert"]):
            start = time.monotonic()
            ran = run(*command, "--lock-timeout", "0.2")
            assert 0.2 <= time.monotonic() - start < 30
            assert (ran.code, ran.out) == (5, "")
            assert ran.err == (
                f"agentcore-patch: waiting for {who} to finish with {package}\n"
                f"error: {package} is locked by {who}, which did not finish within "
                "0.2 s. Nothing was changed.\n"
                "hint: Try again, or wait longer with --lock-timeout.\n"
            )
        assert run("apply").code == 0  # which needs no lock
        assert run("status", "--check").code == 0
        assert photograph(package) == before


def test_a_bug_is_reported_without_a_traceback(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        transaction, "inspect", lambda install: dict[str, str]()["nothing"]
    )

    ran = run("apply")

    assert ran.code == 70
    assert ran.err.startswith(
        f"error: This is a bug in agentcore-patch {full_version()}:"
    )
    assert "KeyError: 'nothing'" in ran.err and "Traceback" not in ran.err
    assert run("apply", "--json").document["error"]["kind"] == "bug"
    monkeypatch.setenv("AGENTCORE_DEBUG", "1")
    with pytest.raises(KeyError):
        run("apply")


def test_a_missing_module_is_reported(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "libcst", None)
    for module in [name for name in sys.modules if ".edits" in name]:
        monkeypatch.delitem(sys.modules, module)

    ran = run("apply")

    assert ran.code == 2 and "needs the module libcst" in ran.err


def test_an_interrupt_exits_with_130(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(install: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(transaction, "inspect", interrupt)

    ran = run("apply")

    assert ran.code == 130
    assert ran.err.strip().startswith("error: Interrupted.")
