"""The comparison of shown output with real output, which must be able to fail."""

from __future__ import annotations

from typing import Any

import pytest

from tests.packaging.comparing import is_excerpt, unlike, unlike_json


@pytest.mark.parametrize(
    ("shown", "seen"),
    [
        ("passed", "failed"),
        ("18 passed", "17 passed"),
        ("a", "a\nb"),
        ("a\nb", "a"),
        ("in /opt/sglang", "in /opt/vllm"),
        ("srt/a.py", "managers/a.py"),
        ("a\n…\nb", "b\na"),
        ("a … c", "a b d"),
        ("a", ""),
    ],
)
def test_unlike(shown: str, seen: str) -> None:
    assert unlike(shown, seen)


@pytest.mark.parametrize(
    ("shown", "seen"),
    [
        ({"a": 1}, {"b": 1}),
        ([1, 2], [1, 3]),
        ([1, "3 more", 5], [1, 2, 5]),
        ([1, "2 more"], [1, 2, 3, 4]),
        ([1, 2, 3], [1, 2]),
        ([1, 2], [1, 2, 3]),
        ([1, "…", 5], [1, 2, 3, 4]),
        ([1, 2, "…", 2, 3], [1, 2, 3]),
        (-0.3938, -0.3838),
        (1, "1"),
        (1, True),
        ({"a": [{"b": "x"}]}, {"a": [{"b": "y"}]}),
    ],
)
def test_unlike_json(shown: Any, seen: Any) -> None:
    assert unlike_json(shown, seen).startswith("$")


def test_an_excerpt_is_in_order() -> None:
    whole = "FROM x\n\nRUN a\nRUN  b\nRUN c\n"
    assert is_excerpt("RUN a\n  RUN c\n", whole)
    assert not is_excerpt("RUN c\nRUN a\n", whole)
    assert not is_excerpt("RUN d", whole)
