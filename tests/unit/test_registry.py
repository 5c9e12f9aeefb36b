"""The patches that this package comes with, and what a patch module must have."""

from __future__ import annotations

import ast
import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from agentcore_patches import cli
from agentcore_patches.edits import AddField, Graft, Insert
from agentcore_patches.errors import PatchError
from agentcore_patches.patches import registry
from agentcore_patches.patches._checking import Patch, checked
from agentcore_patches.patches.versions import SUPPORTED_VERSIONS
from tests.unit.small_sglang import build

ALL_EDITS = [
    edit
    for version in SUPPORTED_VERSIONS
    for name in registry.names()
    for edit in registry.edits(name, version)
]


def test_there_are_at_least_the_three_patches_of_the_first_release() -> None:
    assert {"customized-info", "tito", "token-ids"} <= set(registry.names())


@pytest.mark.parametrize("name", registry.names())
def test_a_summary_is_one_line(name: str) -> None:
    summary = registry.summary(name)
    assert summary
    assert summary == summary.strip()


def test_every_file_of_the_writing_order_is_changed() -> None:
    assert {edit.file for edit in ALL_EDITS} == set(registry.WRITING_ORDER)


def test_all_code_that_lands_is_plain_text_and_parses() -> None:
    for edit in ALL_EDITS:
        if isinstance(edit, Graft):
            assert edit.text.isascii()
            ast.parse(f"if True:\n{edit.text}" if edit.inside else edit.text)
        elif isinstance(edit, Insert):
            assert edit.code.isascii()
            ast.parse(edit.code)
        assert edit.note.isascii()


@pytest.mark.parametrize("version", SUPPORTED_VERSIONS)
def test_every_edit_of_a_release_has_a_description_of_its_own(version: str) -> None:
    edits = {
        edit for name in registry.names() for edit in registry.edits(name, version)
    }
    described = {(edit.file, edit.scope, edit.describe()) for edit in edits}
    assert len(described) == len(edits)


@pytest.mark.parametrize(
    ("version", "flag"),
    [
        ("0.5.8", "stream_output"),
        ("0.5.9", "stream_output"),
        ("0.5.10", "incremental_streaming_output"),
        ("0.5.12.post1", "incremental_streaming_output"),
    ],
)
def test_edits_use_the_names_of_the_release(version: str, flag: str) -> None:
    code = "".join(
        edit.code
        for edit in registry.edits("token-ids", version)
        if isinstance(edit, Insert)
    )
    assert set(re.findall(r"\w+_output\b", code)) >= {flag}
    others = {"stream_output", "incremental_streaming_output"} - {flag}
    assert not any(re.search(rf"server_args\.{other}\b", code) for other in others)


def test_response_fields_are_fields_that_the_patches_add() -> None:
    added = {
        edit.declaration.partition(":")[0]
        for edit in ALL_EDITS
        if isinstance(edit, AddField)
    }
    assert registry.response_fields()
    assert registry.response_fields() <= added


@pytest.mark.parametrize(
    ("since", "until", "version", "holds"),
    [
        ("", "", "0.5.9", True),
        ("0.5.9", "", "0.5.9", True),
        ("0.5.10", "", "0.5.9", False),
        ("0.5.9", "", "0.5.10", True),
        ("", "0.5.9", "0.5.9", True),
        ("", "0.5.9", "0.5.10", False),
        ("", "0.5.10", "0.5.9", True),
        ("0.5.8", "0.5.9", "0.5.9", True),
        ("", "0.5.12", "0.5.12.post1", True),
        ("0.5.13", "", "0.5.12.post1", False),
        ("0.5.12", "", "0.5.12.post1", True),
    ],
)
def test_an_edit_holds_from_since_to_until(
    monkeypatch: pytest.MonkeyPatch,
    since: str,
    until: str,
    version: str,
    holds: bool,
) -> None:
    edit = AddField("srt/a.py", "A", "b: int = 0", since=since, until=until)
    [name, *_] = registry.names()
    patch = Patch("what it gives", (edit,), ())
    monkeypatch.setattr(registry, "_patch", lambda name: patch)
    if holds:
        assert registry.edits(name, version) == (edit,)
    else:
        with pytest.raises(PatchError, match=f"`{name}` has no edit for .* {version}"):
            registry.edits(name, version)


def module(doc: str | None = "what it gives", **names: Any) -> ModuleType:
    """A patch module as an author may write it."""
    made = ModuleType("a_patch", doc)
    vars(made).update({"EDITS": (EDIT,), "RESPONSE_FIELDS": ("b",), **names})
    return made


EDIT = AddField(registry.WRITING_ORDER[0], "A", "b: int = 0")


def test_a_module_says_what_its_patch_is() -> None:
    text = "what it gives\n\nand why"
    assert checked("x", module(text)) == Patch("what it gives", (EDIT,), ("b",))


@pytest.mark.parametrize(
    ("written", "words"),
    [
        (module(None), "The patch `x` has no docstring"),
        (module(" "), "The patch `x` has no docstring"),
        (module(EDITS=None), "The patch `x` must have EDITS, a tuple of Edit"),
        (module(EDITS={"0.5.9": (EDIT,)}), "must have EDITS, a tuple of Edit"),
        (module(EDITS=("b: int",)), "must have EDITS, a tuple of Edit"),
        (module(RESPONSE_FIELDS=None), "must have RESPONSE_FIELDS, a tuple of str"),
        (module(RESPONSE_FIELDS="b"), "must have RESPONSE_FIELDS, a tuple of str"),
        (
            module(EDITS=(replace(EDIT, file="srt/new.py"),)),
            "field `b: int = 0` in `A` of srt/new.py: its file is not in WRITING_ORDER",
        ),
        (
            module(EDITS=(EDIT, replace(EDIT, declaration="b = 0"))),
            "The patch `x` has an edit that is written wrongly: field `b = 0` in `A` of "
            f"{EDIT.file}: `b = 0` does not declare one field.",
        ),
        (
            module(EDITS=(replace(EDIT, since="soon"),)),
            "since or until: Invalid version: 'soon'",
        ),
        (
            module(EDITS=(replace(EDIT, since="0.5.10", until="0.5.9"),)),
            "since 0.5.10 is later than until 0.5.9",
        ),
    ],
)
def test_a_mistake_of_the_author_is_told_with_patch_and_edit(
    written: ModuleType, words: str
) -> None:
    with pytest.raises(PatchError, match=re.escape(words)):
        checked("x", written)


@pytest.mark.parametrize("command", ["list", "apply"])
def test_a_mistake_of_the_author_has_an_exit_code_of_its_own(
    command: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    package = build(tmp_path)
    target = ["--sglang-dir", str(package)] if command == "apply" else []
    broken = module(EDITS=(replace(EDIT, scope="A b"),))
    monkeypatch.setitem(sys.modules, "agentcore_patches.patches.tito", broken)
    registry._patch.cache_clear()
    try:
        assert cli.main([command, *target]) == PatchError.exit_code == 7
        told = capsys.readouterr().err
        assert "The patch `tito` has an edit that is written wrongly" in told
        assert "the scope `A b` is not a dotted name" in told
        assert cli.main([command, "--json", *target]) == 7
        assert json.loads(capsys.readouterr().out)["error"]["kind"] == "patch"
    finally:
        registry._patch.cache_clear()


def test_a_module_that_cannot_be_imported_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "agentcore_patches.patches.no_such", None)
    with pytest.raises(PatchError, match="`no-such` cannot be imported: ModuleNot"):
        registry.summary("no-such")
