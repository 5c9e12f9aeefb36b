"""The patches that this package comes with."""

from __future__ import annotations

import ast

import pytest

from agentcore_patches.edits import AddField, Graft, Insert
from agentcore_patches.patches import registry
from agentcore_patches.patches.versions import SUPPORTED_VERSIONS

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


def test_every_edit_has_a_description_of_its_own() -> None:
    described = {(edit.file, edit.scope, edit.describe()) for edit in ALL_EDITS}
    assert len(described) == len(set(ALL_EDITS))


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
    monkeypatch.setattr(registry._module(name), "EDITS", (edit,))
    assert registry.edits(name, version) == ((edit,) if holds else ())
