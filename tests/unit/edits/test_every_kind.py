"""Properties of every kind of edit, on the examples of each."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from inspect import isabstract
from types import ModuleType

import pytest

from agentcore_patches import edits
from agentcore_patches.edits import Edit, InvalidEdit, Land
from tests.unit.edits import examples as folder
from tests.unit.edits.tables import Example, assert_refused, assert_rewrites, examples

MODULES = [
    import_module(f"{folder.__name__}.{module.name}")
    for module in pkgutil.iter_modules(folder.__path__)
]


def title(module: ModuleType, words: str) -> str:
    """Return the name of an example's test."""
    return f"{module.__name__.rpartition('.')[2]}: {words}"


EXAMPLES = [
    pytest.param(example, id=title(module, example.name))
    for module in MODULES
    for example in examples(module.EXAMPLES)
]
DESCRIBED = [
    pytest.param(edit, words, id=title(module, words))
    for module in MODULES
    for edit, words in module.DESCRIBED.items()
]
MALFORMED = [
    pytest.param(edit, reason, id=title(module, reason))
    for module in MODULES
    for edit, reason in module.MALFORMED.items()
]


def test_every_kind_has_examples_and_they_are_of_that_kind() -> None:
    kinds = {
        kind
        for kind in vars(edits).values()
        if isinstance(kind, type) and issubclass(kind, Edit) and not isabstract(kind)
    }
    for module in MODULES:
        assert len({type(edit) for edit in module.EXAMPLES}) == 1
    assert {type(edit) for module in MODULES for edit in module.EXAMPLES} == kinds - {
        Land
    }


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_edit_changes_a_source_as_its_example_shows(example: Example) -> None:
    if example.refusal:
        assert_refused(example.edit, example.before.encode(), example.refusal)
    else:
        assert_rewrites(example.edit, example.before, example.after)


@pytest.mark.parametrize(("edit", "words"), DESCRIBED)
def test_an_edit_describes_its_change(edit: Edit, words: str) -> None:
    assert edit.describe() == words


@pytest.mark.parametrize(("edit", "reason"), MALFORMED)
def test_an_author_error_is_reported(edit: Edit, reason: str) -> None:
    assert edit.describe()
    with pytest.raises(InvalidEdit) as refused:
        edit.check()
    assert str(refused.value).startswith(reason)
