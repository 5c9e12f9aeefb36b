"""The helper that compares documents with TypedDicts finds each kind of mismatch."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

import pytest

from tests.helpers.documents import mismatches


class Inner(TypedDict):
    kind: Literal["a", "b"]


class Outer(TypedDict):
    count: int
    seconds: float
    inner: Inner | None
    names: list[str]
    by_name: dict[str, Inner]


RIGHT: dict[str, Any] = {
    "count": 1,
    "seconds": 2.0,
    "inner": {"kind": "a"},
    "names": ["x"],
    "by_name": {"x": {"kind": "b"}},
}


def test_a_document_of_the_type_has_no_mismatch() -> None:
    assert mismatches(RIGHT, Outer) == []
    assert mismatches({**RIGHT, "inner": None, "names": []}, Outer) == []


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"count": "1"}, "document.count"),
        ({"count": True}, "document.count"),
        ({"count": None}, "document.count"),
        ({"seconds": "2"}, "document.seconds"),
        ({"inner": {"kind": "c"}}, "document.inner.kind"),
        ({"inner": {}}, "document.inner: [], described as ['kind']"),
        ({"names": [1]}, "document.names[0]"),
        ({"names": {}}, "document.names"),
        ({"by_name": {"x": {"kind": "c"}}}, "document.by_name.x.kind"),
        ({"more": 1}, "document: ['by_name'"),
    ],
)
def test_a_mismatch_is_named_with_its_place(change: Any, place: str) -> None:
    found = mismatches({**RIGHT, **change}, Outer)
    assert found and found[0].startswith(place)
