"""The command: what it prints where, and with which exit code, on a small SGLang."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import socket
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Callable
from dataclasses import dataclass
from fcntl import ioctl
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest

from agentcore_patches import __version__, api, cli, console, transaction
from agentcore_patches.errors import ServerError
from agentcore_patches.install import find
from agentcore_patches.patches import registry
from agentcore_patches.patches.versions import SUPPORTED_VERSIONS
from tests.unit.small_sglang import (
    MODELS,
    SERVING,
    SOURCES,
    build,
    contents,
    kill_apply,
)

COMMAND = [sys.executable, "-m", "agentcore_patches"]


@dataclass(frozen=True)
class Ran:
    """What a command gave."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Ran]


@pytest.fixture
def run(package: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command on the small SGLang: `run("apply", "--json")`."""

    def run(*args: str) -> Ran:
        on_target = args[0] in ("apply", "status", "revert")
        target = ["--sglang-dir", str(package)] if on_target else []
        return Ran(cli.main([*args, *target]), *capsys.readouterr())

    return run


# What people see


def test_apply_shows_each_file_and_what_is_in_place(run: Run, package: Path) -> None:
    ran = run("apply")

    assert (ran.code, ran.err) == (0, "")
    assert ran.out == (
        f"SGLang 0.5.9 in {package} (given by --sglang-dir)\n"
        "\n"
        "  FILE            EDITS      ACTION   SOURCE\n"
        "  srt/models.py   1 applied  patched  as released\n"
        "  srt/serving.py  1 applied  patched  as released\n"
        "\n"
        "Patched 2 files: alpha and beta are in place now. A server that is already "
        "running keeps the old code until it is restarted. `agentcore-patch revert` "
        "gives the originals back.\n"
    )


def test_a_second_apply_says_that_nothing_is_to_do(run: Run, package: Path) -> None:
    run("apply")

    ran = run("apply")

    assert ran.code == 0
    assert ran.out.endswith("\n\nNothing to do: alpha and beta are in place.\n")


def test_a_dry_run_says_that_nothing_was_written(run: Run, package: Path) -> None:
    ran = run("apply", "--dry-run")

    assert ran.code == 0
    assert "srt/models.py   1 applied  to patch  as released" in ran.out
    assert "Dry run, nothing was written: 2 files would be patched." in ran.out
    assert contents(package) == SOURCES


def test_a_diff_comes_first_and_without_colours_into_a_pipe(run: Run) -> None:
    ran = run("apply", "--dry-run", "--diff")

    assert ran.out.startswith("--- a/sglang/srt/models.py\n+++ b/sglang/srt/models.py")
    assert "+    text.ids = model.ids\n" in ran.out
    assert "\x1b" not in ran.out


def test_somebody_elses_changes_are_named(run: Run, package: Path) -> None:
    (package / SERVING).write_bytes(SOURCES[SERVING] + b"# theirs\n")

    note = (
        "Apart from the patches, srt/serving.py differs from the wheel of SGLang "
        "0.5.9: somebody else's changes, which are kept.\n"
    )
    for command in ("status", "apply", "revert"):
        assert run(command).out.endswith(f"\n\n{note}")


def test_an_install_without_record_is_called_unknown(run: Run, package: Path) -> None:
    shutil.rmtree(package.parent / "sglang-0.5.9.dist-info")

    assert "is unknown: no wheel's RECORD covers them." in run("status").out


def test_status_says_how_to_go_on(run: Run, package: Path) -> None:
    ran = run("status")

    assert ran.code == 0
    assert "  beta   not applied\n" in ran.out
    assert "  srt/serving.py  not patched  as released\n" in ran.out
    assert ran.out.endswith(
        "alpha and beta are not applied; `agentcore-patch apply` does that.\n"
    )


def test_status_says_who_applied_what(run: Run) -> None:
    run("apply")

    assert run("status").out.endswith(
        f"alpha and beta are in place, applied by agentcore-patch {__version__}.\n"
    )


def test_status_names_what_somebody_did_since(run: Run, package: Path) -> None:
    run("apply")
    (package / MODELS).write_bytes((package / MODELS).read_bytes() + b"# theirs\n")
    (package / SERVING).unlink()

    out = run("status").out

    assert "  srt/models.py   edited since  as released\n" in out
    assert "  srt/serving.py  missing " in out
    assert "Somebody edited srt/models.py since: undo that, or drop it with" in out
    assert "Missing: srt/serving.py; reinstall SGLang." in out


def test_status_names_a_replaced_file_and_how_to_go_on(run: Run, package: Path) -> None:
    run("apply")
    (package / SERVING).write_bytes(b"def other(): ...\n")

    assert "Somebody replaced srt/serving.py since (a reinstall?)" in run("status").out


def test_status_tells_an_older_patch_from_another_build(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("apply")
    monkeypatch.setattr(registry, "fingerprint", lambda: "another")
    assert "are as another build of agentcore-patch" in run("status").out
    monkeypatch.setattr(console, "__version__", "9.9")

    ran = run("status", "--check")

    assert ran.code == 1
    assert (
        f"are as agentcore-patch {__version__} wrote them; `agentcore-patch apply` "
        "brings those of 9.9." in ran.out
    )


def test_status_advises_to_keep_what_is_in_place(
    run: Run, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.apply(sglang_dir=package, only=["alpha"])
    three = ("alpha", "beta", "gamma")
    monkeypatch.setattr(registry, "names", lambda: three)

    result = api.status(sglang_dir=package, only=["beta"])

    assert (
        console.Text()
        .status(result)
        .endswith(
            "beta is not applied; `agentcore-patch apply --only alpha --only beta` does "
            "that."
        )
    )


def test_patches_without_a_record_are_told(run: Run, package: Path) -> None:
    run("apply")
    shutil.rmtree(package / ".agentcore-patch")

    for command in ("apply", "status"):
        ran = run(command)
        assert ran.code == 0
        assert "in these sources" in ran.out
        assert "`agentcore-patch revert` cannot take them out." in ran.out
    assert run("status", "--check").code == 0
    assert run("revert").code == 4


def test_revert_shows_what_was_restored(run: Run, package: Path) -> None:
    run("apply")

    ran = run("revert")

    assert ran.code == 0
    assert "  srt/models.py   restored  as released\n" in ran.out
    assert "Restored 2 files: alpha and beta are out." in ran.out
    assert contents(package) == SOURCES
    assert run("revert").out.endswith("Nothing to revert: no patch is applied.\n")


def test_list_shows_what_each_patch_gives(run: Run) -> None:
    assert run("list").out == (
        "Patches for SGLang 0.5.9:\n"
        "\n"
        "  alpha\n    what alpha gives\n      srt/models.py\n"
        "\n"
        "  beta\n    what beta gives\n      srt/models.py\n      srt/serving.py\n"
    )


def test_what_was_put_right_is_told_beside_the_answer(run: Run, package: Path) -> None:
    kill_apply(package, "decided.json")

    ran = run("status", "--json")

    line = "undid an interrupted apply of alpha, beta"
    assert ran.err == f"agentcore-patch: {line}\n"
    assert ran.document["recovered"] == line


def test_a_waiting_command_says_so_and_goes_on(run: Run, package: Path) -> None:
    install = find(package, supported=SUPPORTED_VERSIONS)
    held = threading.Event()

    def hold() -> None:
        with transaction.locked(install):
            held.set()
            threading.Event().wait(0.3)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    ran = run("apply", "--json")
    holder.join()

    assert (ran.code, ran.document["changed"]) == (0, True)
    assert ran.err.startswith("agentcore-patch: waiting for another agentcore-patch (")


# Lines fit the terminal


def test_sentences_are_wrapped_and_commands_are_not() -> None:
    text = "Run `agentcore-patch apply --only token-ids` and `agentcore-patch status`."
    failure = console.Failure("usage", 2, f"{text}\n  its log: /a/long/path/to/a/log")

    assert console.Text(40).failure(failure).splitlines() == [
        "Error: Run",
        "`agentcore-patch apply --only token-ids`",
        "and `agentcore-patch status`.",
        "  its log: /a/long/path/to/a/log",
    ]
    assert console.Text().failure(failure).splitlines()[0] == f"Error: {text}"


def on_terminal(columns: int, *args: str, **env: str) -> str:
    """What the command shows on a terminal so many columns wide."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 40, columns, 0, 0))
    process = subprocess.Popen(
        [*COMMAND, *args],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, **env},
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            some = os.read(ours, 65536)
        except OSError:  # all of it was read
            break
        if not some:
            break
        shown += some
    os.close(ours)
    process.wait()
    return shown.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("columns", [50, 80, 200])
def test_text_fits_a_terminal(tmp_path: Path, columns: int) -> None:
    package = build(tmp_path)

    for args in (["apply", "--only", "nothing"], ["status", "--python", "nothing"]):
        lines = on_terminal(columns, *args).splitlines()
        assert max(map(len, lines)) <= columns
        assert (len(lines) == 1) is (columns == 200)

    shown = on_terminal(columns, "status", "--sglang-dir", str(package))
    paragraph = shown.split("\n\n")[-1]
    assert "are not applied" in paragraph.replace("\n", " ")
    assert max(map(len, paragraph.splitlines())) <= columns


# What scripts see

SGLANG = {"path", "version", "release", "found", "editable"}


def test_the_documents_have_the_keys_that_are_promised(run: Run, package: Path) -> None:
    applied = run("apply", "--json", "--diff").document
    assert set(applied) == {
        *("sglang", "patches", "removed", "changed", "dry_run", "recorded"),
        *("recovered", "files", "edits"),
    }
    assert set(applied["sglang"]) == SGLANG
    assert set(applied["files"][0]) == {
        *("path", "applied", "present", "action", "pristine", "diff"),
    }
    assert set(applied["edits"][0]) == {
        *("patch", "file", "scope", "description", "outcome"),
    }

    told = run("status", "--json").document
    assert set(told) == {
        *("sglang", "patches", "wanted", "complete", "applied_by", "recorded"),
        *("files", "pending", "recovered"),
    }
    assert told["patches"] == {"alpha": "in place", "beta": "in place"}
    assert set(told["files"][0]) == {"path", "state", "pristine"}

    reverted = run("revert", "--json").document
    assert set(reverted) == {"sglang", "patches", "files", "changed", "recovered"}
    assert set(reverted["files"][0]) == {"path", "state", "pristine"}

    listed = run("list", "--json").document
    assert set(listed) == {"sglang_versions", "patches"}
    assert set(listed["patches"][0]) == {"name", "summary", "files"}


def test_the_documents_say_what_happened(run: Run, package: Path) -> None:
    planned = run("apply", "--json", "--dry-run").document
    assert (planned["changed"], planned["dry_run"]) == (True, True)
    done = run("apply", "--json").document
    assert (done["changed"], done["dry_run"]) == (True, False)
    assert done["files"] == planned["files"]
    assert done["edits"] == planned["edits"]
    assert done["sglang"] == {
        "path": str(package),
        "version": "0.5.9",
        "release": "0.5.9",
        "found": "given by --sglang-dir",
        "editable": False,
    }
    assert run("apply", "--json").document["changed"] is False
    assert run("status", "--json").document["complete"] is True
    assert run("revert", "--json").document["changed"] is True
    assert run("status", "--json").document["complete"] is False


# Exit codes and errors


def test_check_is_about_all_patches_up_to_date(run: Run) -> None:
    assert run("status", "--check").code == 1
    run("apply")
    assert run("status", "--check").code == 0
    assert run("status").code == 0
    run("revert")
    assert run("status").code == 0


def spoil_nothing(package: Path) -> None: ...


def spoil_version(package: Path) -> None:
    (package / "version.py").write_text('__version__ = "0.6.1"\n')
    shutil.rmtree(package.parent / "sglang-0.5.9.dist-info")


def spoil_shape(package: Path) -> None:
    (package / SERVING).write_text("def reply(): ...\n")


def spoil_links(package: Path) -> None:
    (package / SERVING).unlink()
    (package / SERVING).symlink_to("serving.py")


@pytest.mark.parametrize(
    ("spoil", "args", "code", "kind", "says"),
    [
        (spoil_nothing, ["aply"], 2, "usage", "No such command 'aply'"),
        (spoil_nothing, ["apply", "--fast"], 2, "usage", "No such option"),
        (
            spoil_nothing,
            ["apply", "--only", "nothing"],
            2,
            "usage",
            "'customized-info', 'tito', 'token-ids'",
        ),
        (
            spoil_nothing,
            ["apply", "--python", "python"],
            2,
            "usage",
            "either --sglang-dir or --python",
        ),
        (spoil_nothing, ["apply", "--lock-timeout", "-1"], 2, "usage", "x>=0"),
        (
            spoil_version,
            ["apply"],
            3,
            "unsupported-target",
            "0.6.1 .* is not supported; supported: 0.5.9",
        ),
        (spoil_version, ["status", "--check"], 3, "unsupported-target", "0.6.1"),
        (spoil_version, ["revert"], 3, "unsupported-target", "0.6.1"),
        (
            spoil_shape,
            ["apply"],
            4,
            "source-conflict",
            "serving.py: .* `answer` .* Nothing was written",
        ),
        (spoil_shape, ["apply", "--dry-run"], 4, "source-conflict", "`answer`"),
        (spoil_links, ["apply"], 5, "access", "serving.py"),
        (spoil_links, ["status"], 5, "access", "serving.py"),
    ],
)
def test_errors_are_one_paragraph_or_one_document(
    run: Run,
    package: Path,
    spoil: Callable[[Path], None],
    args: list[str],
    code: int,
    kind: str,
    says: str,
) -> None:
    spoil(package)
    before = contents(package) if spoil is not spoil_links else {}

    told = run(*args)
    scripted = run(*args, "--json")

    assert (told.code, told.out) == (code, "")
    assert told.err.startswith("Error: ") and told.err.count("\n") == 1
    assert re.search(says, told.err)
    assert (scripted.code, scripted.err) == (code, "")
    error = scripted.document["error"]
    assert (error["kind"], error["exit_code"]) == (kind, code)
    assert error["message"] in told.err or kind == "usage"
    assert spoil is spoil_links or contents(package) == before


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["apply", "--ray", "auto", "--diff"], 2, "--diff shows one SGLang"),
        (["apply", "--ray", "local"], 2, "'local' is not the address of a running Ray"),
        (["status", "--ray", "127.0.0.1"], 2, "'127.0.0.1' is not the address of"),
        (
            ["status", "--ray", "auto", "--sglang-dir", "here"],
            2,
            "give an absolute one",
        ),
        (["apply", "--ray", "127.0.0.1:1"], 5, "at 127.0.0.1:1: .*Connection refused"),
        (["status", "--ray", "ray://127.0.0.1:1"], 5, "Connection refused"),
        (["status", "--ray", "ray.invalid:1"], 5, "at ray.invalid:1: .* not known"),
    ],
)
def test_a_cluster_that_is_not_there_is_told_at_once(
    capsys: pytest.CaptureFixture[str], args: list[str], code: int, says: str
) -> None:
    assert cli.main(args) == code

    shown = capsys.readouterr()
    assert shown.out == ""
    assert re.search(says, shown.err) and shown.err.count("\n") == 1


def test_ray_that_is_not_installed_is_told(tmp_path: Path) -> None:
    (tmp_path / "ray.py").write_text("raise ImportError('no Ray here')")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        ran = subprocess.run(
            [*COMMAND, "apply", "--ray", f"127.0.0.1:{listening.getsockname()[1]}"],
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )

    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("Error: --ray needs Ray, and ")
    assert "(no Ray here)" in ran.stderr and ran.stderr.count("\n") == 1
    assert "`pip install 'agentcore-patches[ray]'`" in ran.stderr


def test_a_lock_that_is_held_ends_with_5(run: Run, package: Path) -> None:
    with transaction.locked(find(package, supported=SUPPORTED_VERSIONS)):
        ran = run("apply", "--lock-timeout", "0")

    assert ran.code == 5
    assert f"(process {os.getpid()})" in ran.err and "--lock-timeout" in ran.err
    assert contents(package) == SOURCES


def test_revert_refuses_an_edited_file_unless_forced(run: Run, package: Path) -> None:
    run("apply")
    (package / MODELS).write_bytes((package / MODELS).read_bytes() + b"# theirs\n")

    assert run("revert").code == 4
    assert run("revert", "--force").code == 0
    assert contents(package) == SOURCES


def test_a_bug_is_told_without_a_traceback(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        transaction, "inspect", lambda install: dict[str, str]()["nothing"]
    )

    ran = run("apply")

    assert ran.code == 70
    assert ran.err.startswith(f"Error: This is a bug of agentcore-patch {__version__}:")
    assert "KeyError: 'nothing'" in ran.err and "Traceback" not in ran.err
    assert run("apply", "--json").document["error"]["kind"] == "bug"
    monkeypatch.setenv("AGENTCORE_DEBUG", "1")
    with pytest.raises(KeyError):
        run("apply")


def test_an_interruption_ends_with_130(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(install: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(transaction, "inspect", interrupt)

    ran = run("apply")

    assert ran.code == 130
    assert ran.err.strip().startswith("Error: Interrupted.")


# verify, which is another package's


@pytest.fixture
def verify(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Have the verify command do something else."""

    def attach(action: Callable[[], object]) -> None:
        @click.command("verify")
        @click.option("--json", "as_json", is_flag=True)
        def command(as_json: bool) -> object:
            return action()

        module = ModuleType("agentcore_verify.command")
        module.verify = command  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "agentcore_verify.command", module)

    return attach


def test_verify_runs_with_its_own_exit_codes(
    run: Run, verify: Callable[[Callable[[], object]], None]
) -> None:
    def die() -> None:
        raise ServerError("The server died.\nIts last line")

    verify(lambda: 1)
    assert run("verify").code == 1
    verify(die)
    ran = run("verify")
    assert ran.code == 6
    assert (ran.out, ran.err) == ("", "Error: The server died.\nIts last line\n")
    ran = run("verify", "--json")
    assert (ran.code, ran.err) == (6, "")
    assert json.loads(ran.out)["error"]["kind"] == "server"


def test_help_shows_verify_without_importing_it() -> None:
    code = (
        "import sys\n"
        "from agentcore_patches.cli import main\n"
        "main([])\n"
        "assert not any(name.startswith('agentcore_verify') for name in sys.modules)\n"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    for command in ("apply", "status", "revert", "list", "verify"):
        assert f"\n  {command} " in shown
    assert "\nExit codes:\n" in shown or "\n  Exit codes:\n" in shown


@pytest.mark.parametrize("command", ["apply", "status", "revert"])
def test_help_has_examples_in_80_columns(run: Run, command: str) -> None:
    ran = run(command, "--help")

    assert ran.code == 0
    assert f"Examples:\n    agentcore-patch {command}\n" in ran.out
    assert max(map(len, ran.out.splitlines())) <= 80


# The process


def test_both_names_run_the_same_command() -> None:
    script = Path(sys.executable).with_name("agentcore-patch")

    for command in ([script], COMMAND):
        ran = subprocess.run(
            [*command, "--version"], capture_output=True, text=True, check=True
        )
        assert ran.stdout == f"agentcore-patch {__version__}\n"


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    with os.fdopen(theirs, "w") as closed:
        ran = subprocess.run(
            [*COMMAND, "status", "--sglang-dir", str(build(tmp_path))],
            stdout=closed,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (ran.returncode, ran.stderr) == (0, "")


def test_a_full_disk_behind_stdout_is_told(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [*COMMAND, "status", "--sglang-dir", str(build(tmp_path))],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert ran.returncode == 5
    assert ran.stderr.startswith("Error: Cannot write to <stdout>: No space left")
    assert ran.stderr.count("\n") == 1


def test_names_that_cannot_be_encoded_are_shown_escaped(tmp_path: Path) -> None:
    package = build(tmp_path / "größe")

    ran = subprocess.run(
        [*COMMAND, "status", "--sglang-dir", str(package)],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=True,
    )

    assert rb"gr\xf6\xdfe" in ran.stdout


def test_an_interpreter_that_is_not_there_is_told() -> None:
    ran = subprocess.run(
        [*COMMAND, "status", "--python", "/nowhere/python"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.returncode == 3
    assert ran.stderr.startswith("Error: ") and "/nowhere/python" in ran.stderr


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("ap", {"apply"}),
        ("apply --only t", {"tito", "token-ids"}),
        ("status --ch", {"--check"}),
        ("verify --dev", {"--device"}),
        ("verify --check lo", {"logprobs"}),
    ],
)
def test_the_shell_completes_commands_options_and_names(
    typed: str, offered: set[str]
) -> None:
    ran = subprocess.run(
        COMMAND,
        env={
            **os.environ,
            "_AGENTCORE_PATCH_COMPLETE": "bash_complete",
            "COMP_WORDS": f"agentcore-patch {typed}",
            "COMP_CWORD": str(len(typed.split())),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert {line.partition(",")[2] for line in ran.stdout.splitlines()} == offered
