"""From sources and patches to new texts, or to a refusal with a hint."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import TypeAlias

import pytest

from agentcore_patches.edits import (
    AddField,
    AddMethod,
    Edit,
    Import,
    Insert,
    Land,
    RefuseField,
    Replace,
    ScopedEdit,
)
from agentcore_patches.errors import SourceConflict
from agentcore_patches.patches import registry
from agentcore_patches.patches.paths import FACTS_MODULE
from agentcore_patches.planning.fitting import fitting_release
from agentcore_patches.planning.plan import make_plan
from agentcore_patches.planning.selection import Selection
from tests.helpers.planning import VERSION, refusal

LANDED = "srt/agentcore/http/traces.py"
MODELS = "srt/models.py"
SERVING = "srt/serving.py"

SOURCES = {
    MODELS: b"class Answer:\n    text: str\n\n    def dump(self, data):\n        return data\n",
    SERVING: b"def serve(model):\n    text = model()\n    return text\n",
}

IDS = AddField(MODELS, "Answer", "ids: list = None", name="ids/field", note="wanted")
SERVE = Insert(SERVING, "serve", "text.text = model.text", before="return text")
HOOK = Insert(SERVING, "serve", "agentcore.traces.trace(text)", before="return text")
MADE: dict[str, tuple[ScopedEdit, ...]] = {
    "alpha": (IDS, SERVE),
    "beta": (IDS, AddField(MODELS, "Answer", "n: int = 0")),
}


Registered: TypeAlias = dict[str, tuple[Edit, ...]]


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> Registered:
    """Patches for two small files; serving is written before the models."""
    made: Registered = dict(MADE)
    monkeypatch.setattr(
        registry, "WRITING_ORDER", (FACTS_MODULE, LANDED, SERVING, MODELS)
    )
    monkeypatch.setattr(registry, "edits", lambda name, version: made[name])
    facts = Land(FACTS_MODULE, "VERSION = 1\n", name="facts")
    monkeypatch.setattr(registry, "facts", lambda names, version: facts)
    return made


def test_partly_patched_sources_are_refused() -> None:
    patched = make_plan(SOURCES, Selection(("alpha",), VERSION)).files
    message = refusal({**SOURCES, MODELS: patched[MODELS]}, ["alpha"])
    assert message.startswith(
        f"{MODELS}: `Answer` has the field `ids` already, but {SERVING}: "
        "`serve` lacks `text.text = model.text` before `return text`: the sources contain "
        "another version of this patch, or only a part of it. Nothing was written."
    )


def test_a_text_that_would_not_compile_is_refused(registered: Registered) -> None:
    registered["gamma"] = (
        Insert(MODELS, "Answer.dump", "await log(data)", before="return data"),
    )
    message = refusal(SOURCES, ["gamma"])
    assert message.startswith(f"{MODELS} would not compile once patched: ")


BODY = "text = x\n    return text\n"
METHOD = AddMethod(MODELS, "Answer", "def f(self, x: Undefined) -> None: ...")
OF_MODELS = SOURCES[MODELS].decode()
LAZY = f"from __future__ import annotations\n{OF_MODELS}"


@pytest.mark.parametrize(
    ("edit", "undefined", "source"),
    [
        (SERVE, "model", f"def serve(x):\n    {BODY}"),
        (SERVE, "model", f"def serve(x):\n    y = [model for model in x]\n    {BODY}"),
        (SERVE, "model", f"def other(model): pass\ndef serve(x):\n    {BODY}"),
        (AddField(MODELS, "Answer", "a: Optional[int] = None"), "Optional", OF_MODELS),
        (METHOD, "Undefined", OF_MODELS),
        # Annotations that are not evaluated may name anything.
        (METHOD, None, LAZY),
        # A member of the class around is not in a method's scope.
        (
            Insert(MODELS, "Answer.dump", "data = n", before="return data"),
            "n",
            f"{OF_MODELS}\n    n = 1\n",
        ),
        (HOOK, "agentcore", SOURCES[SERVING].decode()),
        # A replacement may read what the old statement read.
        (
            Replace(SERVING, "serve", "text = model()", "text = model(print)"),
            None,
            SOURCES[SERVING].decode(),
        ),
        (SERVE, None, f"def serve(*model):\n    {BODY}"),
        (SERVE, None, f"model = 1\ndef serve(x):\n    {BODY}"),
        (SERVE, None, f"from a import b as model\ndef serve(x):\n    {BODY}"),
        (SERVE, None, f"class model: pass\ndef serve(x):\n    {BODY}"),
        (SERVE, None, f"def serve(x):\n    global model\n    model = x\n    {BODY}"),
        (SERVE, None, f"def serve(x):\n    if (model := x): pass\n    {BODY}"),
        (SERVE, None, f"def serve(x):\n    for model in x: pass\n    {BODY}"),
        # The function itself read the name before.
        (SERVE, None, f"def serve(x):\n    print(model)\n    {BODY}"),
    ],
)
def test_new_code_uses_only_names_that_are_defined(
    registered: Registered, edit: ScopedEdit, undefined: str | None, source: str
) -> None:
    registered["gamma"] = (edit,)
    sources = {edit.file: source.encode()}
    if undefined is None:
        assert make_plan(sources, Selection(("gamma",), VERSION)).files
        return
    assert refusal(sources, ["gamma"]).startswith(
        f"{edit.file}: in `{edit.scope}`, new code would use `{undefined}`, which "
        "nothing defines."
    )


@pytest.mark.parametrize(
    ("code", "updated"),
    [
        ("text += 1; agentcore_new = 0", ""),
        ("for item in text: text = model(item)", "item"),
        ("renamed += 1", "renamed"),
        ("renamed = model(renamed)", "renamed"),
        ("if renamed: renamed = 1", "renamed"),
        ("for renamed in renamed: pass", "renamed"),
    ],
)
def test_a_hook_updates_only_variables_of_its_function(
    registered: Registered, code: str, updated: str
) -> None:
    hook = Insert(SERVING, "serve", code, before="return text", name="ids/keep")
    registered["gamma"] = (hook,)
    if not updated:
        assert make_plan(SOURCES, Selection(("gamma",), VERSION)).files
        return
    assert refusal(SOURCES, ["gamma"]).startswith(
        f"{SERVING}: in `serve`, new code (ids/keep) would update `{updated}`, which the "
        "function does not have."
    )


CALLING: tuple[Edit, ...] = (
    Land(LANDED, "def trace(text):\n    return text\n", name="traces"),
    Import(SERVING, "sglang.srt", "agentcore"),
    HOOK,
)
IMPORTING = {SERVING: b"from sglang.srt.x import y\n" + SOURCES[SERVING]}


def test_a_module_lands_before_the_file_that_calls_it_and_is_counted(
    registered: Registered,
) -> None:
    registered["gamma"] = CALLING
    plan = make_plan(IMPORTING, Selection(("gamma",), VERSION))
    assert list(plan.files) == [FACTS_MODULE, LANDED, SERVING]
    assert plan.files[LANDED] == b"def trace(text):\n    return text\n"
    assert plan.files[SERVING].startswith(
        b"from sglang.srt import agentcore\nfrom sglang.srt.x import y\ndef serve"
    )
    landed = list(plan.changed)[1]
    assert (landed.file, landed.describe()) == (LANDED, "the module")
    again = make_plan({**IMPORTING, **plan.files}, Selection(("gamma",), VERSION))
    assert again.files == {}
    assert not any(again.changed.values())


@pytest.mark.parametrize("is_changed", [True, False])
def test_a_field_that_must_be_absent_refuses_the_plan(
    registered: Registered, is_changed: bool
) -> None:
    """The file is changed, or only looked at."""
    registered["gamma"] = (RefuseField(MODELS, "Answer", ("text", "n")), SERVE)
    given = SOURCES if is_changed else {SERVING: SOURCES[SERVING]}
    with pytest.raises(SourceConflict) as refused:
        make_plan(given, Selection(("gamma",), VERSION), SOURCES.get)
    assert str(refused.value).startswith(
        f"{MODELS}: in `Answer`, cannot place a check that there is no field `text` or "
        "`n`: the class has a field of that name: `text: str`."
    )
    assert "Nothing was written." in str(refused.value)


def test_planning_restores_garbage_collection() -> None:
    try:
        for switch in (gc.disable, gc.enable):
            switch()
            make_plan(SOURCES, Selection(("alpha",), VERSION))
            assert gc.isenabled() is (switch is gc.enable)
    finally:
        gc.enable()


# An SGLang that is not listed

OTHER_IDS = AddField(MODELS, "Answer", "ids: list = []")
GONE = AddField(MODELS, "Gone", "ids: list = None")


def fitting(monkeypatch: pytest.MonkeyPatch, **edits: tuple[Edit, ...]) -> str:
    """Return the fitting release, of some with these edits, the oldest first."""
    monkeypatch.setattr(registry, "edits", lambda name, version: edits[version])
    return fitting_release(
        ["alpha"],
        list(edits),
        lambda paths: {path: SOURCES[path] for path in paths},
        lambda path: None,
    ).release


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            [OTHER_IDS, SERVE],
            [IDS, SERVE],
            rf"new and those of old both fit.* of it: {MODELS}\. Nothing",
        ),
        ([SERVE], [IDS], rf"different files of it: {MODELS}, {SERVING}\. Nothing"),
        (
            [replace(GONE, scope="Old")],
            [GONE],
            "of new, the closest, miss this: .*`Gone`",
        ),
    ],
)
def test_two_fitting_releases_or_none_are_refused(
    old: list[Edit], new: list[Edit], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SourceConflict, match=said) as refused:
        fitting(monkeypatch, old=tuple(old), new=tuple(new))
    assert str(refused.value).count("Nothing was written.") == 1
