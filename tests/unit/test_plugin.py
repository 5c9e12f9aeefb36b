"""The guard at the start of a server, on the small SGLang."""

from __future__ import annotations

import logging
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from agentcore_patches import __version__, api, plugin
from agentcore_patches.installs import install as installs
from tests.unit.small_sglang import MODELS, SERVING, SOURCES, kill_apply

NAME = f"agentcore-patch {__version__}:"


@pytest.fixture(autouse=True)
def first_process(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this the first process of a server that runs the small SGLang."""
    find = installs.find
    monkeypatch.setattr(installs, "find", lambda *target: find(package))
    # Set first, so that it is also removed at the end.
    for name in (plugin.REQUIRE, plugin.APPLY, "_AGENTCORE_CHECKED"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def refuse() -> None:
    with pytest.raises(SystemExit):
        plugin.register()


def restore(package: Path) -> None:
    for path, text in SOURCES.items():
        (package / path).write_bytes(text)


def edit(package: Path) -> None:
    with (package / MODELS).open("ab") as file:
        file.write(b"# mine\n")


def upgrade(package: Path) -> None:
    (package / "version.py").write_text('__version__ = "0.5.10"\n')


def interrupt(package: Path) -> None:
    with pytest.MonkeyPatch.context() as another:
        another.setattr(api, "tool_version", lambda: "0.9.0+another")
        kill_apply(package, "committed.json")


def without_an_extra(package: Path) -> None:
    api.apply(without=["beta"])


APPLY = "run `agentcore-patch apply --with beta`."
LOST: dict[Callable[[Path], None], str] = {
    restore: f"is not patched: {APPLY}",
    edit: "1 of 3 patched files in {package} were changed since: `agentcore-patch status` "
    "names them and the remedy.",
    upgrade: f"not fully patched (SGLang changed from 0.5.9 to 0.5.10): {APPLY}",
    interrupt: f"not fully patched (an unfinished apply of core, beta): {APPLY}",
    without_an_extra: f"lacks beta: {APPLY}",
}


@pytest.mark.parametrize("lose", LOST)
def test_a_server_that_requires_lost_patches_does_not_start(
    package: Path,
    lose: Callable[[Path], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    api.apply(extras=["beta"])
    monkeypatch.setenv(plugin.REQUIRE, "core, beta,")
    plugin.register()
    lose(package)
    capsys.readouterr()

    with pytest.raises(SystemExit) as stopped:
        plugin.register()

    assert stopped.value.code == 78
    told = capsys.readouterr().err
    assert told.startswith(f"error: {NAME} ") and told.count("\n") == 1
    assert LOST[lose].format(package=package) in told


def test_without_a_requirement_the_state_is_logged_once(
    package: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    plugin.register()
    api.apply()
    plugin.register()
    # SGLang's scheduler, which the process above spawns.
    monkeypatch.setattr(plugin, "parent_process", lambda: "a process")
    plugin.register()

    place = f"SGLang 0.5.9 in {package}"
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("WARNING", f"{NAME} {place} is not patched: run `agentcore-patch apply`."),
        ("INFO", f"{NAME} core is in place."),
    ]


def test_patches_without_a_record_are_found(
    package: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.apply()
    shutil.rmtree(package / ".agentcore-patch")
    monkeypatch.setenv(plugin.REQUIRE, "core")
    caplog.set_level(logging.INFO)
    plugin.register()
    assert caplog.messages == [f"{NAME} core is in place."]

    (package / SERVING).write_bytes(SOURCES[SERVING])
    refuse()


def test_a_trainer_may_spawn_the_first_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plugin, "parent_process", lambda: "a process")
    monkeypatch.setenv(plugin.REQUIRE, "core")
    for _ in range(2):  # A refusal is no verdict for a second attempt.
        refuse()


def test_a_process_with_another_requirement_is_checked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plugin, "parent_process", lambda: "a process")
    plugin.register()
    monkeypatch.setenv(plugin.REQUIRE, "core")
    refuse()


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        (plugin.REQUIRE, "core,betta", "no patch named betta. Did you mean beta?"),
        (plugin.REQUIRE, "core", "KeyError: 'broken'"),
        (plugin.APPLY, "yes", "AGENTCORE_APPLY must be 0 or 1, not 'yes'."),
        (plugin.APPLY, "1", "KeyError: 'broken'"),
    ],
)
def test_a_check_that_fails_stops_the_server(
    variable: str,
    value: str,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def break_down(*target: object) -> None:
        raise KeyError("broken")

    monkeypatch.setattr(installs, "find", break_down)
    monkeypatch.setenv(variable, value)
    refuse()
    assert told in capsys.readouterr().err


def test_patches_are_applied_before_sglang_imports_the_files(
    package: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setenv(plugin.REQUIRE, "beta")
    monkeypatch.setenv(plugin.APPLY, "1")
    monkeypatch.setitem(sys.modules, "sglang.srt.models", logging)
    refuse()
    late = "AGENTCORE_APPLY=1 is too late here: sglang.srt.models is imported already."
    assert f"is not patched: {APPLY} {late}" in capsys.readouterr().err
    assert not api.status().patches

    monkeypatch.delitem(sys.modules, "sglang.srt.models")
    plugin.register()
    monkeypatch.setitem(sys.modules, "sglang.srt.models", logging)
    plugin.register()
    assert caplog.messages == [f"{NAME} core and beta are in place."] * 2


def test_an_unlisted_sglang_that_was_patched_is_in_place(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (package / "version.py").write_text('__version__ = "0.5.99"\n')
    monkeypatch.setenv(plugin.APPLY, "1")
    refuse()
    api.apply(unlisted=True)
    plugin.register()
