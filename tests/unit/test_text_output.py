"""Output for people: tables, advice, and lines that fit the terminal."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from agentcore_patches import api
from agentcore_patches._version import full_version
from agentcore_patches.command import result_output
from agentcore_patches.patches import registry
from agentcore_patches.patches.releases import SUPPORTED_VERSIONS
from agentcore_patches.shell.exit_codes import Failure
from agentcore_patches.shell.text_output import TextOutput
from tests.helpers.trees import contents
from tests.unit.running import Run
from tests.unit.small_sglang import MODELS, SERVING, SOURCES, kill_apply

UNPATCHED = "Nothing to revert: SGLang's files are the originals.\n"


@pytest.mark.parametrize("command", ["apply", "status", "revert"])
def test_quiet_commands_print_nothing(run: Run, package: Path, command: str) -> None:
    kill_apply(package, "committed.json")
    ran = run(command, "--quiet")
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    assert run(command, "-q", "--json").document["sglang"]["release"] == "0.5.9"


def test_a_dry_run_shows_what_would_be_done(run: Run, package: Path) -> None:
    end = "2 files to edit. Dry run: nothing was written.\n"
    assert run("apply", "--dry-run").out == (
        f"Would patch SGLang 0.5.9 in {package}: the core, {end}"
    )
    assert contents(package) == SOURCES
    run("apply", "--with", "beta")

    assert run("apply", "--dry-run", "--without", "beta").out == (
        "  FILE           EDITS  ACTION             SOURCE\n"
        "  srt/engine.py  0      would be restored  as released\n"
        "\n"
        f"Would patch SGLang 0.5.9 in {package}: the core, 2 files to edit, 1 to restore. "
        "beta would be removed. Dry run: nothing was written.\n"
    )


def test_changes_by_others_are_named(run: Run, package: Path) -> None:
    forked = SOURCES[SERVING] + b"# theirs\n"
    (package / SERVING).write_bytes(forked)
    planned = run("apply", "--dry-run").out
    assert "  srt/serving.py  1      would be patched  modified\n" in planned
    assert MODELS not in planned

    note = (
        "Apart from the patches, srt/serving.py differs from the wheel of SGLang "
        "0.5.9. These changes are kept.\n"
    )
    for command in ("status", "apply", "revert"):
        assert run(command).out.endswith(f"\n\n{note}")
    assert (package / SERVING).read_bytes() == forked


def test_an_install_without_record_is_called_unknown(run: Run, package: Path) -> None:
    shutil.rmtree(package.parent / "sglang-0.5.9.dist-info")

    assert (
        "is unknown: there is no wheel's RECORD with their hashes." in run("status").out
    )


def test_status_shows_the_next_step(run: Run, package: Path) -> None:
    ran = run("status")

    assert ran.code == 0
    assert ran.out == (
        f"SGLang 0.5.9 in {package}: not patched. To patch it: "
        f"`agentcore-patch apply --sglang-dir {package}`.\n"
    )
    output = run("status", "-v").out
    assert output.startswith(f"SGLang 0.5.9 in {package} (given by --sglang-dir)\n\n")
    assert "  srt/serving.py  not patched  as released\n" in output
    assert output.endswith(ran.out)
    (package / SERVING).unlink()
    assert "  srt/serving.py  missing  unknown\n" in run("status").out


@pytest.mark.parametrize(
    ("version", "advice"),
    [
        ("0.5.7", f"`pip install sglang=={SUPPORTED_VERSIONS[-1]}`"),
        ("0.6.1", "`agentcore-patch apply --unlisted --sglang-dir {package}`"),
    ],
)
def test_status_gives_no_advice_that_fails_on_an_unsupported_sglang(
    run: Run, package: Path, version: str, advice: str
) -> None:
    shutil.rmtree(package.parent / "sglang-0.5.9.dist-info")
    (package / "version.py").write_text(f'__version__ = "{version}"\n')

    output = run("status").out

    assert output.startswith(f"SGLang {version} in {package}: not patched. ")
    assert f"SGLang {version} is not supported." in output
    assert "supports SGLang 0.5.8 to" in output
    assert re.findall("`[^`]*`", output) == [advice.format(package=package)]


@pytest.mark.parametrize(
    ("change", "state", "says"),
    [
        (
            lambda file: file.write_bytes(file.read_bytes() + b"# theirs\n"),
            "edited since",
            "Edited since: srt/serving.py. Undo that change, or discard it",
        ),
        (Path.unlink, "missing", "Missing: srt/serving.py. Restore the files with"),
        (
            lambda file: file.write_bytes(b"def other(): ...\n"),
            "replaced since",
            "Replaced since, perhaps by a reinstall of SGLang: srt/serving.py.",
        ),
    ],
)
def test_status_names_a_later_change_and_the_next_step(
    run: Run, package: Path, change: Callable[[Path], object], state: str, says: str
) -> None:
    run("apply")
    change(package / SERVING)
    out = run("status").out
    assert f"  srt/serving.py  {state} " in out and says in out


def test_status_distinguishes_an_older_patch_from_another_build(
    run: Run, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("apply")
    monkeypatch.setattr(registry, "fingerprint", lambda: "another")
    assert "the core is outdated: applied by another build of" in run("status").out
    monkeypatch.setattr(result_output, "full_version", lambda: "9.9")

    ran = run("status", "--check")

    assert ran.code == 1
    assert (
        f"is outdated: applied by agentcore-patch {full_version()}. `agentcore-patch apply "
        f"--sglang-dir {package}` replaces this with 9.9." in ran.out
    )


def test_a_later_commit_with_the_same_patches_is_in_place(
    run: Run, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "full_version", lambda: "9.9.dev0+gabc")
    run("apply")
    monkeypatch.setattr(api, "full_version", lambda: "9.9.dev0+gdef")
    ran = run("status", "--check")
    assert ran.code == 0
    assert "applied by agentcore-patch 9.9.dev0+gabc." in ran.out


def test_patches_without_a_record_are_reported(run: Run, package: Path) -> None:
    run("apply")
    shutil.rmtree(package / ".agentcore-patch")

    for command in ("apply", "status"):
        ran = run(command)
        assert ran.code == 0
        assert "in these sources" in ran.out
        revert = f"`agentcore-patch revert --sglang-dir {package}`"
        assert f"{revert} cannot remove the patches." in ran.out
    assert run("status", "--check").code == 0
    ran = run("revert")
    assert ran.code == 4 and MODELS not in ran.err
    assert ran.err.startswith(
        f"error: 2 files are patched in {package}, but the original"
    )
    assert f"  {MODELS}\n  {SERVING}\nhint: " in run("revert", "-v").err
    document = run("revert", "--json").document
    assert document["error"]["details"] == [MODELS, SERVING]


def test_revert_shows_what_was_restored(run: Run, package: Path) -> None:
    run("apply")

    before = contents(package)
    planned = run("revert", "--dry-run", "-v")
    document = run("revert", "--dry-run", "--json").document
    assert contents(package) == before
    ran = run("revert", "-v")

    assert "  srt/models.py   would be restored  as released\n" in planned.out
    assert planned.out.endswith(
        "Would restore SGLang 0.5.9: 2 files. Would remove the core. Dry run: nothing was "
        "written.\n"
    )
    assert "  srt/models.py   restored  as released\n" in ran.out
    assert ran.out.endswith(
        "Restored SGLang 0.5.9: 2 files. Removed the core. Restart its servers.\n"
    )
    assert contents(package) == SOURCES
    assert run("revert").out == run("revert", "--dry-run").out == UNPATCHED
    run("apply")
    assert document == {**run("revert", "--json").document, "dry_run": True}


def test_list_has_a_row_for_each_patch_with_its_state(run: Run, package: Path) -> None:
    first, last = SUPPORTED_VERSIONS[0], SUPPORTED_VERSIONS[-1]
    run("apply")
    target = ("--sglang-dir", str(package))

    assert run("list", *target).out == (
        f"The core and the extras for SGLang 0.5.9 in {package}:\n"
        "\n"
        "  NAME  STATE        EDITS  ADDS  GIVES\n"
        "  core  in place     2      0     what core gives\n"
        "  beta  not applied  1      0     what beta gives\n"
        "\n"
        f"EDITS and ADDS count files. Supported are SGLang {first} to {last} "
        f"({len(SUPPORTED_VERSIONS)} releases).\n"
    )
    assert run("list", "-q", *target).out == ""
    listed = run("list", "--json", *target).document["patches"]
    assert [patch["state"] for patch in listed] == ["in place", "not applied"]


def test_list_falls_back_to_the_newest_release(
    run: Run, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(package.parent))
    (package / "__init__.py").touch()
    (package / "version.py").write_text('__version__ = "0.6.1"\n')

    ran = run("list")

    assert ran.code == 0
    assert ran.out.startswith(
        f"The core and the extras for SGLang {SUPPORTED_VERSIONS[-1]}:\n"
    )
    assert f"\n\nSGLang 0.6.1 in {package} is not supported." in ran.out
    assert run("list", "--sglang-dir", str(package)).code == 3


def test_sentences_are_wrapped_and_commands_are_not() -> None:
    text = "Run `agentcore-patch apply --with vllm-api` and `agentcore-patch status`."
    failure = Failure("usage", 2, f"{text}\n  its log: /a/long/path/to/a/log")

    assert TextOutput(40).failure(failure).splitlines() == [
        "error: Run",
        "`agentcore-patch apply --with vllm-api`",
        "and `agentcore-patch status`.",
        "  its log: /a/long/path/to/a/log",
    ]
    assert TextOutput().failure(failure).splitlines()[0] == f"error: {text}"
