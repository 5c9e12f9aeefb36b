"""The comparison of shown output with real output, which must be able to fail."""

from __future__ import annotations

from typing import Any

import pytest

from tests.packaging.comparing import unlike, unlike_excerpt, unlike_json

ALIKE = {
    "equal": ("a\nb\n", "a\nb\n"),
    "an ellipsis in a line": ("took … by us", "took 5 of 7 by us\n"),
    "an ellipsis as a line": ("a\n…\nz", "a\nb\nc\nz\n"),
    "an ellipsis for nothing": ("a\n...\nz", "a\nz"),
    "columns and blank lines": ("A   B\n1   2", "A     B\n\n1     2  \n\n"),
    "times": ("done in 1.5 s", "done in 12.25 s"),
    "a path": ("in /opt/venv/lib/python3.12/sglang", "in /tmp/x/sglang"),
    "an ellipsis in a path": ("in /opt/venv/… now", "in /tmp/x/bin/python now"),
    "an error of the CPU": ("within 1e-06", "within 2.4e-07"),
}
UNLIKE = {
    "another word": ("passed", "failed"),
    "another number": ("18 passed", "17 passed"),
    "a line too many": ("a", "a\nb"),
    "a line too few": ("a\nb", "a"),
    "another end of a path": ("in /opt/sglang", "in /opt/vllm"),
    "a relative path": ("srt/a.py", "managers/a.py"),
    "another order": ("a\n…\nb", "b\na"),
    "more after an ellipsis": ("a … c", "a b d"),
    "nothing": ("a", ""),
}


@pytest.mark.parametrize(("shown", "seen"), ALIKE.values(), ids=ALIKE)
def test_alike(shown: str, seen: str) -> None:
    assert unlike(shown, seen) == ""


@pytest.mark.parametrize(("shown", "seen"), UNLIKE.values(), ids=UNLIKE)
def test_unlike(shown: str, seen: str) -> None:
    assert unlike(shown, seen)


ALIKE_JSON: dict[str, tuple[Any, Any]] = {
    "equal": ({"a": [1, None, True, "x"]}, {"a": [1, None, True, "x"]}),
    "a field that is not shown": ({"a": 1}, {"a": 1, "b": 2}),
    "entries that are left out": ([1, "3 more", 5], [1, 2, 3, 4, 5]),
    "entries left out at the end": ([1, "2 more"], [1, 2, 3]),
    "any entries": ([1, "…", 4, 5], [1, 2, 3, 4, 5]),
    "digits that are not shown": (-0.3938, -0.39376),
    "an ellipsis": ("Bad … given", "Bad field given"),
}
UNLIKE_JSON: dict[str, tuple[Any, Any]] = {
    "a field that is gone": ({"a": 1}, {"b": 1}),
    "another ID of a token": ([1, 2], [1, 3]),
    "fewer left out": ([1, "3 more", 5], [1, 2, 5]),
    "more left out": ([1, "2 more"], [1, 2, 3, 4]),
    "too few": ([1, 2, 3], [1, 2]),
    "too many": ([1, 2], [1, 2, 3]),
    "another end": ([1, "…", 5], [1, 2, 3, 4]),
    "an end twice": ([1, 2, "…", 2, 3], [1, 2, 3]),
    "another digit": (-0.3938, -0.3838),
    "another type": (1, "1"),
    "true for 1": (1, True),
    "deep down": ({"a": [{"b": "x"}]}, {"a": [{"b": "y"}]}),
}


@pytest.mark.parametrize(("shown", "seen"), ALIKE_JSON.values(), ids=ALIKE_JSON)
def test_alike_json(shown: Any, seen: Any) -> None:
    assert unlike_json(shown, seen) == ""


@pytest.mark.parametrize(("shown", "seen"), UNLIKE_JSON.values(), ids=UNLIKE_JSON)
def test_unlike_json(shown: Any, seen: Any) -> None:
    assert unlike_json(shown, seen).startswith("$")


def test_an_excerpt_is_in_order() -> None:
    whole = "FROM x\n\nRUN a\nRUN  b\nRUN c\n"
    assert unlike_excerpt("RUN a\n  RUN c\n", whole) == ""
    assert "RUN a" in unlike_excerpt("RUN c\nRUN a\n", whole)
    assert "RUN d" in unlike_excerpt("RUN d", whole)
