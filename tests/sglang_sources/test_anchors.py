"""Sources in which one place does not fit its edit are refused by name."""

from __future__ import annotations

import ast
from collections.abc import Callable

import pytest

from agentcore_patches.edits import (
    AddCondition,
    AddKeyword,
    Edit,
    Insert,
    RefuseDefinition,
    Replace,
    ScopedEdit,
)
from agentcore_patches.patches.paths import LANDED
from agentcore_patches.patches.registry import edits, names
from tests.helpers.planning import VERSION, refusal
from tests.sglang_sources import surgery
from tests.sglang_sources.releases import sources

SOURCES = sources(VERSION)
EDITS = list(
    dict.fromkeys(
        edit
        for name in names()
        for edit in edits(name, VERSION)
        if edit.file not in LANDED
    )
)

SCOPED = [
    edit
    for edit in EDITS
    if isinstance(edit, ScopedEdit) and not isinstance(edit, RefuseDefinition)
]
PLACES = list(dict.fromkeys((edit.file, edit.scope) for edit in SCOPED))


def shape_of(edit: Edit) -> str:
    match edit:
        case Insert():
            return edit.before or edit.after
        case Replace():
            return edit.old
        case AddCondition():
            return edit.shape
    raise TypeError(edit)


def variables(edit: Edit) -> list[str]:
    """Return the variables of its function that an edit's code reads."""
    code = edit.argument.partition("=")[2] if isinstance(edit, AddKeyword) else ""
    code = code or edit.new_code
    assert isinstance(edit, ScopedEdit)
    scope = surgery.definition(SOURCES[edit.file], edit.scope)
    own = surgery.bound_names(ast.parse(code))
    return sorted((surgery.read_names(code) - own) & surgery.bound_names(scope))


def each(*kinds: type[Edit], where: Callable[[Edit], object]) -> pytest.MarkDecorator:
    """Parametrize by the edits of some kinds."""
    chosen = [edit for edit in EDITS if isinstance(edit, kinds) and where(edit)]
    assert chosen
    ids = [f"{edit.name}-{edit.file}" for edit in chosen]
    return pytest.mark.parametrize("edit", chosen, ids=ids)


def refusal_of(file: str, mutant: bytes) -> str:
    """Return the refusal of sources with another text for the edit's file."""
    assert mutant != SOURCES[file]
    compile(mutant, file, "exec")
    message = refusal({**SOURCES, file: mutant}, names())
    assert file in message
    assert "Nothing was written. If another tool changed these sources" in message
    return message


def anchors(source: bytes, edit: Edit) -> list[ast.stmt]:
    assert isinstance(edit, ScopedEdit)
    scope = surgery.definition(source, edit.scope)
    return surgery.matching(source, scope, shape_of(edit))


@pytest.mark.parametrize(("file", "scope"), PLACES, ids=[scope for _, scope in PLACES])
def test_a_missing_or_duplicate_definition_is_refused(file: str, scope: str) -> None:
    source = SOURCES[file]
    node = surgery.definition(source, scope)
    for mutant, said in (
        (surgery.renamed(source, node), "is not defined"),
        (surgery.dropped(source, [node]), "is not defined"),
        (surgery.doubled(source, node), "is defined 2 times"),
    ):
        assert f"`{node.name}` {said}" in refusal_of(file, mutant)


@each(Insert, Replace, AddCondition, where=shape_of)
def test_a_missing_or_duplicate_statement_is_refused(edit: Edit) -> None:
    source = SOURCES[edit.file]
    [found] = anchors(source, edit)
    for mutant, said in (
        (surgery.dropped(source, [found]), "was not found"),
        (surgery.doubled(source, found), "was found 2 times, expected 1"),
    ):
        message = refusal_of(edit.file, mutant)
        # Several edits may search for one statement; the refusal names the first.
        assert f"in {edit.where}" in message
        assert said in message


@each(Insert, AddKeyword, Replace, AddCondition, where=variables)
def test_a_renamed_variable_is_refused(edit: Edit) -> None:
    assert isinstance(edit, ScopedEdit)
    source = SOURCES[edit.file]
    node = surgery.definition(source, edit.scope)
    for name in variables(edit):
        mutant = surgery.substituted(source, node, name, f"{name}_of_a_fork")
        message = refusal_of(edit.file, mutant)
        assert edit.scope.rpartition(".")[2] in message


def test_a_missing_import_of_new_code_is_refused() -> None:
    file, name = "srt/managers/tokenizer_manager.py", "ContinueGenerationReqInput"
    [imported] = [
        node
        for node in ast.parse(SOURCES[file]).body
        if isinstance(node, ast.ImportFrom)
        and name in {alias.name for alias in node.names}
    ]
    mutant = surgery.substituted(SOURCES[file], imported, name, "Final")
    message = refusal_of(file, mutant)
    assert f"new code would use `{name}`, which nothing defines" in message
