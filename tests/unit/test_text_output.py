"""What people see: tables, sentences that say what to do, lines that fit the terminal."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

from agentcore_patches import __version__, api, cli, text_output
from agentcore_patches.failure import Failure
from agentcore_patches.install import find
from agentcore_patches.patches import registry
from agentcore_patches.patches.versions import SUPPORTED_VERSIONS
from agentcore_patches.state import transaction
from agentcore_patches.text_output import TextOutput
from tests.helpers.terminal import shown_on_terminal
from tests.helpers.trees import contents
from tests.unit.running import COMMAND, Run
from tests.unit.small_sglang import MODELS, SERVING, SOURCES, build, kill_apply


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
        "Patched 2 files: alpha and beta are now in place. A server that is already "
        "running keeps the old code until it is restarted. `agentcore-patch revert` "
        "restores the original files.\n"
    )


def test_a_second_apply_says_that_nothing_is_to_do(run: Run, package: Path) -> None:
    run("apply")

    ran = run("apply")

    assert ran.code == 0
    assert ran.out.endswith("\n\nNothing to do: alpha and beta are already in place.\n")


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

    assert (
        "is unknown: there is no wheel's RECORD with their hashes." in run("status").out
    )


def test_status_says_how_to_go_on(run: Run, package: Path) -> None:
    ran = run("status")

    assert ran.code == 0
    assert "  beta   not applied\n" in ran.out
    assert "  srt/serving.py  not patched  as released\n" in ran.out
    assert ran.out.endswith(
        "alpha and beta are not applied. To apply: `agentcore-patch apply`.\n"
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
    assert "Somebody edited srt/models.py since. Undo that change, or discard it" in out
    assert "Missing: srt/serving.py. Restore the files with" in out


def test_status_names_a_replaced_file_and_how_to_go_on(run: Run, package: Path) -> None:
    run("apply")
    (package / SERVING).write_bytes(b"def other(): ...\n")

    out = run("status").out

    assert "Somebody replaced srt/serving.py since (by reinstalling SGLang?)." in out


def test_status_tells_an_older_patch_from_another_build(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("apply")
    monkeypatch.setattr(registry, "fingerprint", lambda: "another")
    assert "are outdated: applied by another build of" in run("status").out
    monkeypatch.setattr(text_output, "__version__", "9.9")

    ran = run("status", "--check")

    assert ran.code == 1
    assert (
        f"are outdated: applied by agentcore-patch {__version__}. `agentcore-patch "
        "apply` replaces them by those of 9.9." in ran.out
    )


def test_status_advises_to_keep_what_is_in_place(
    run: Run, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.apply(sglang_dir=package, only=["alpha"])
    three = ("alpha", "beta", "gamma")
    monkeypatch.setattr(registry, "names", lambda: three)

    result = api.status(sglang_dir=package, only=["beta"])

    assert (
        TextOutput()
        .status(result)
        .endswith(
            "beta is not applied. To apply: "
            "`agentcore-patch apply --only alpha --only beta`."
        )
    )


def test_patches_without_a_record_are_told(run: Run, package: Path) -> None:
    run("apply")
    shutil.rmtree(package / ".agentcore-patch")

    for command in ("apply", "status"):
        ran = run(command)
        assert ran.code == 0
        assert "in these sources" in ran.out
        assert "`agentcore-patch revert` cannot remove the patches." in ran.out
    assert run("status", "--check").code == 0
    assert run("revert").code == 4


def test_revert_shows_what_was_restored(run: Run, package: Path) -> None:
    run("apply")

    ran = run("revert")

    assert ran.code == 0
    assert "  srt/models.py   restored  as released\n" in ran.out
    assert "Restored 2 files: alpha and beta are removed." in ran.out
    assert contents(package) == SOURCES
    assert run("revert").out.endswith("Nothing to revert: no patch is applied.\n")


def test_list_shows_what_each_patch_gives(run: Run) -> None:
    assert run("list").out == (
        f"Patches for SGLang {', '.join(SUPPORTED_VERSIONS)}:\n"
        "\n"
        "  alpha\n    what alpha gives\n      srt/models.py\n"
        "\n"
        "  beta\n    what beta gives\n      srt/models.py\n      srt/serving.py\n"
    )


def test_what_was_put_right_is_told_beside_the_answer(run: Run, package: Path) -> None:
    kill_apply(package, "committed.json")

    ran = run("apply", "--json")

    line = "undid an interrupted apply of alpha, beta"
    assert ran.err == f"agentcore-patch: {line}\n"
    assert ran.document["recovered"] == line


def test_a_waiting_command_says_so_and_goes_on(
    run: Run, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install = find(package, supported=SUPPORTED_VERSIONS)
    held, waiting = threading.Event(), threading.Event()
    show = cli._notify

    def notify(line: str) -> None:
        show(line)
        waiting.set()

    monkeypatch.setattr(cli, "_notify", notify)

    def hold() -> None:
        with transaction.locked(install):
            held.set()
            waiting.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    ran = run("apply", "--json")
    holder.join()

    assert (ran.code, ran.document["changed"]) == (0, True)
    assert ran.err.startswith("agentcore-patch: waiting for another agentcore-patch (")


def test_sentences_are_wrapped_and_commands_are_not() -> None:
    text = "Run `agentcore-patch apply --only token-ids` and `agentcore-patch status`."
    failure = Failure("usage", 2, f"{text}\n  its log: /a/long/path/to/a/log")

    assert TextOutput(40).failure(failure).splitlines() == [
        "Error: Run",
        "`agentcore-patch apply --only token-ids`",
        "and `agentcore-patch status`.",
        "  its log: /a/long/path/to/a/log",
    ]
    assert TextOutput().failure(failure).splitlines()[0] == f"Error: {text}"


@pytest.mark.parametrize("columns", [50, 80, 200])
def test_text_fits_a_terminal(tmp_path: Path, columns: int) -> None:
    package = build(tmp_path)

    for args in (["apply", "--only", "nothing"], ["status", "--python", "nothing"]):
        lines = shown_on_terminal([*COMMAND, *args], columns).splitlines()
        assert max(map(len, lines)) <= columns
        assert (len(lines) == 1) is (columns == 200)

    shown = shown_on_terminal(
        [*COMMAND, "status", "--sglang-dir", str(package)], columns
    )
    paragraph = shown.split("\n\n")[-1]
    assert "are not applied" in paragraph.replace("\n", " ")
    assert max(map(len, paragraph.splitlines())) <= columns
