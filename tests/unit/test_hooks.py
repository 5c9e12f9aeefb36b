"""Hooks and their forms by release, and the attributes of a patch module."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from agentcore_patches.edits import (
    AddField,
    Insert,
    InvalidEdit,
    ScopedEdit,
)
from agentcore_patches.errors import PatchError
from agentcore_patches.patches.hooks import Absent, Hook, Patch, absent, checked
from agentcore_patches.patches.paths import (
    OUTPUT_PROCESSOR,
    PROTOCOL,
    SERVING_CHAT,
)
from agentcore_patches.patches.releases import SUPPORTED_VERSIONS

EDIT = AddField(PROTOCOL, "Answer", "ids: list = None")
OTHER = AddField(PROTOCOL, "Answer", "ids: list = []")
NONE = absent("SGLang does it")


Form = ScopedEdit | Absent
Since = Mapping[str, Form]
ALWAYS: Since = {}


def hook(form: Form, since: Since = ALWAYS, name: str = "a/b") -> Hook:
    return Hook(name, "because", form, since)


GONE = replace(EDIT, file=OUTPUT_PROCESSOR)


def inserting(code: str) -> Insert:
    return Insert(SERVING_CHAT, "f", code)


MALFORMED = [
    (EDIT, {"0.5.7": OTHER}, "no supported release is before 0.5.7"),
    (EDIT, {"0.5.11": OTHER, "0.5.9": NONE}, "it changes in 0.5.11, 0.5.9: these must"),
    (EDIT, {"0.5.10.post1": OTHER}, "it changes in 0.5.10.post1: these must be"),
    (NONE, ALWAYS, "it has no edit for any release"),
    (EDIT, {"0.5.9": EDIT}, "two forms, one after the other, are the same"),
    (replace(EDIT, file="srt/new.py"), ALWAYS, "srt/new.py is not in WRITING_ORDER"),
    (NONE, {"0.5.9": GONE}, f"SGLang {SUPPORTED_VERSIONS[-1]} has no {GONE.file}"),
    (GONE, ALWAYS, f"not all releases have {GONE.file}"),
    (inserting("x = $no"), ALWAYS, "a `$` names nothing that is in NAMES: 'no'"),
    (inserting("x = '$'"), ALWAYS, "a `$` names nothing that is in NAMES: Inv"),
    (replace(EDIT, scope="A b"), ALWAYS, "the scope `A b` is not a dotted name"),
]


@pytest.mark.parametrize(("form", "since", "words"), MALFORMED)
def test_a_malformed_hook_is_reported(form: Form, since: Since, words: str) -> None:
    with pytest.raises(InvalidEdit) as refused:
        hook(form, since).check()
    assert str(refused.value).startswith(words)


def module(doc: str | None = "what it gives", **names: Any) -> ModuleType:
    """Return a patch module as an author may write it."""
    made = ModuleType("a_patch", doc)
    vars(made).update({"HOOKS": (HOOK,), "RESPONSE_FIELDS": ("b",), **names})
    return made


HOOK = hook(EDIT)


def test_a_module_describes_its_patch() -> None:
    text = "what it gives\n\nand why"
    assert checked("x", module(text)) == Patch("what it gives", (HOOK,), ("b",))


@pytest.mark.parametrize(
    ("written", "words"),
    [
        (module(None), "The patch `x` has no docstring"),
        (
            module(HOOKS=(hook(NONE, ALWAYS, "a/a"), hook(EDIT, {"0.5.7": OTHER}))),
            "a hook that is written wrongly: a/a: it has no edit for any release; "
            "a/b: no supported release is before 0.5.7, so what 0.5.7 replaces is "
            "unused.",
        ),
        (
            module(HOOKS=(HOOK, hook(OTHER))),
            "a hook that is written wrongly: a/b: another hook has this name.",
        ),
    ],
)
def test_an_author_error_names_the_patch_and_the_hook(
    written: ModuleType, words: str
) -> None:
    with pytest.raises(PatchError, match=re.escape(words)):
        checked("x", written)
