"""Properties of every kind of edit, on the examples of each."""

from __future__ import annotations

from inspect import isabstract

import pytest

from agentcore_patches import edits
from agentcore_patches.edits import Edit, InvalidEdit, Land
from tests.unit.edits.examples import checks, definitions, imports, statements
from tests.unit.edits.tables import Example, assert_refused, assert_rewrites, examples

EXAMPLES = {
    **checks.EXAMPLES,
    **definitions.EXAMPLES,
    **imports.EXAMPLES,
    **statements.EXAMPLES,
}
MALFORMED = {**checks.MALFORMED, **definitions.MALFORMED, **statements.MALFORMED}


def test_every_kind_has_examples() -> None:
    kinds = {
        kind
        for kind in vars(edits).values()
        if isinstance(kind, type) and issubclass(kind, Edit) and not isabstract(kind)
    }
    assert {type(edit) for edit in EXAMPLES} == kinds - {Land}


@pytest.mark.parametrize(
    "example",
    [*examples(EXAMPLES)],
    ids=lambda example: f"{type(example.edit).__name__}: {example.name}",
)
def test_an_edit_changes_a_source_as_its_example_shows(example: Example) -> None:
    if example.refusal:
        assert_refused(example.edit, example.before.encode(), example.refusal)
    else:
        assert_rewrites(example.edit, example.before, example.after)


@pytest.mark.parametrize(("edit", "reason"), [*MALFORMED.items()])
def test_an_author_error_is_reported(edit: Edit, reason: str) -> None:
    assert edit.describe()
    with pytest.raises(InvalidEdit) as refused:
        edit.check()
    assert str(refused.value).startswith(reason)
