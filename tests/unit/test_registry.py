"""The patches that this package comes with, and how they are found."""

from __future__ import annotations

import ast
import hashlib
import json
import re
import shutil
import sys
from functools import cache
from pathlib import Path

import pytest

from agentcore_patches._version import __version__, full_version
from agentcore_patches.command import cli
from agentcore_patches.edits import (
    AddField,
    Edit,
    Land,
    Replace,
)
from agentcore_patches.errors import PatchError
from agentcore_patches.landing.http import defaults
from agentcore_patches.listing import EditList
from agentcore_patches.patches import registry, releases
from agentcore_patches.patches.paths import (
    ANTHROPIC_PROTOCOL,
    ANTHROPIC_SERVING,
    LANDED,
)
from agentcore_patches.patches.releases import SUPPORTED_VERSIONS
from tests.helpers.documents import mismatches
from tests.helpers.planning import VERSION

LONGEST_REASON = 66
"""A comment of this length has 88 columns at SGLang's deepest indentation."""

LANDING = Path(registry.__file__).parents[1] / "landing"

each_patch = pytest.mark.parametrize("name", registry.names())
each_release = pytest.mark.parametrize("version", SUPPORTED_VERSIONS)


@cache
def all_edits(version: str = "") -> tuple[Edit, ...]:
    """Return the edits of all patches, each once, for one release or for all."""
    return tuple(
        dict.fromkeys(
            edit
            for release in SUPPORTED_VERSIONS
            if version in ("", release)
            for name in registry.names()
            for edit in registry.edits(name, release)
        )
    )


def test_the_list_of_ever_patched_files_only_grows() -> None:
    """If a file leaves it, installs patched by a version that changed it are locked out.

    Every command refuses their record.
    """
    files = sorted({*registry.EVER_PATCHED})
    digest = hashlib.sha256("\n".join(files).encode()).hexdigest()
    found = (len(files), digest[:16])
    assert found == (38, "e9483a653fd9edc3"), "add, remove nothing"
    assert {*registry.WRITING_ORDER} <= {*files, *LANDED}
    assert len(registry.EVER_PATCHED) == len(files)


@each_patch
def test_a_patch_is_well_written_for_every_release(name: str) -> None:
    summary = registry.summary(name)
    assert summary.splitlines() == [summary.strip()]
    for hook in registry.hooks(name):
        assert re.fullmatch(r"[a-z0-9-]+/[a-z0-9-]+", hook.name)
        assert 0 < len(hook.why) <= LONGEST_REASON, hook.name
        for version in SUPPORTED_VERSIONS:
            for edit in hook.edits(version):
                edit.check()


def test_all_code_that_lands_is_plain_text_and_parses() -> None:
    for edit in all_edits():
        code = edit.text if isinstance(edit, Land) else edit.new_code
        assert code.isascii()
        ast.parse(code)
        assert edit.comment.isascii()
        assert [line for line in code.splitlines() if len(line) > 88] == [], edit.file


@each_release
def test_hooks_call_only_functions_of_modules_that_their_room_imports(
    version: str,
) -> None:
    defined = {
        f"{room.name}.{module}.{node.name}"
        for room in LANDING.iterdir()
        if (package := room / "__init__.py").exists()
        for module in re.findall(
            r"(?m)^from \. import (\w+)", package.read_text("utf-8")
        )
        for node in ast.parse((room / f"{module}.py").read_text("utf-8")).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }
    for edit in all_edits(version):
        if not isinstance(edit, Land):
            called = re.findall(r"\bagentcore\.([\w.]+)", edit.new_code)
            named = re.search(r"\bagentcore\b", edit.new_code)
            assert called or not named, edit.name
            assert set(called) <= defined, edit.name


def facts_text(version: str) -> str:
    text = registry.facts([registry.CORE], version).text
    return text.replace(full_version(), __version__)


def test_the_facts_in_the_repository_match_a_release() -> None:
    text = (LANDING / "release.py").read_text("utf-8")
    # `make docs` writes it.
    assert text == facts_text(VERSION) != facts_text(SUPPORTED_VERSIONS[-1])


def test_the_facts_list_the_extras_but_not_the_release() -> None:
    facts: dict[str, object] = {}
    exec(registry.facts(registry.names(), "0.5.15").text, facts)
    assert facts["VERSION"] == full_version()
    assert facts["INSTALLED"] == registry.names()
    assert facts["LISTED"] == SUPPORTED_VERSIONS
    assert facts_text("0.5.15") == facts_text("0.5.15.post1") == facts_text("0.5.16")


def test_patches_add_or_change_the_flags_and_fields_that_are_listed() -> None:
    adding = [edit for edit in all_edits() if isinstance(edit, AddField)]
    changing = [edit for edit in all_edits() if isinstance(edit, Replace)]
    declared = {
        line for edit in (*adding, *changing) for line in edit.new_code.splitlines()
    }
    assert {f"{flag}: Optional[bool] = None" for flag in defaults.FLAGS} <= declared
    added = {field for edit in adding for field in edit.fields}
    assert set() < registry.response_fields() <= added


def test_dropping_a_release_names_what_becomes_unused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That of 0.5.8 and its post-release."""
    registry._patch.cache_clear()
    monkeypatch.setattr(releases, "SUPPORTED_VERSIONS", SUPPORTED_VERSIONS[2:])
    assert releases.unused_lines() == [
        f"RELEASES, {file}: no supported release is before 0.5.9"
        for file in (ANTHROPIC_PROTOCOL, ANTHROPIC_SERVING)
    ]
    with pytest.raises(PatchError, match="The tables of releases are wrong: RELEASES"):
        registry.hooks("core")
    monkeypatch.setattr(registry, "unused_lines", lambda: [])
    with pytest.raises(PatchError, match=r"release is before 0\.5\.9, so .* is unused"):
        registry.hooks("core")


EXTRAS = {extra.replace("-", "_") for extra in registry.extras()}


@pytest.mark.parametrize(
    ("room", "others"),
    [
        ("http", EXTRAS),
        ("scheduler", {"http", *EXTRAS}),
        ("shared", {"http", "scheduler", *EXTRAS}),
    ],
)
def test_a_room_of_landing_code_imports_no_room_of_other_processes(
    room: str, others: set[str]
) -> None:
    for module in (LANDING / room).glob("*.py"):
        for node in ast.walk(ast.parse(module.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level == 2:
                rooms = [node.module] if node.module else [n.name for n in node.names]
                assert others.isdisjoint(name.split(".")[0] for name in rooms), module


def test_the_fingerprint_covers_all_code_that_decides_what_lands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = Path(registry.__file__).parents[1]
    copy = shutil.copytree(
        package, tmp_path / "copy", ignore=shutil.ignore_patterns("__pycache__")
    )
    monkeypatch.setattr(registry, "_PATCHES", copy / "patches")
    before = registry.fingerprint.__wrapped__()
    assert before == registry.fingerprint()
    for path in (
        *("edits/source.py", "landing/http/traces.py", "patches/core/token_ids.py"),
        *("planning/stubs.py", "stubs/sglang/srt/server_args.pyi"),
    ):
        with (copy / path).open("a") as file:
            file.write("# changed")
        after = registry.fingerprint.__wrapped__()
        assert after != before, path
        before = after
    # A commit is written into the version; it alone changes nothing that lands.
    for path in ("api.py", "state/transaction.py", "_version.py"):
        with (copy / path).open("a") as file:
            file.write("# changed")
        assert registry.fingerprint.__wrapped__() == before, path


def test_a_module_that_cannot_be_imported_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "agentcore_patches.patches.no_such", None)
    with pytest.raises(PatchError, match="`no-such` cannot be imported: ModuleNot"):
        registry.summary("no-such")


# `list --edits`


def test_the_listed_hooks_are_shown_and_match_their_document_type(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["list", "--edits"]) == 0
    shown = capsys.readouterr().out
    assert "token-ids/choice: hold the token IDs generated for this choice" in shown
    assert "    0.5.13 to 0.5.23  nothing: SGLang has the field" in shown
    assert "(SGLang: PR 37365, open)" in shown
    assert "(SGLang: PR 23751, 0.5.13; ends in 0.5.13)" in shown
    assert cli.main(["list", "--edits", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert mismatches(document, EditList) == []
