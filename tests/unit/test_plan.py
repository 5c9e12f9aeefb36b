from __future__ import annotations

import pytest

from agentcore_patches.edits import AddField, Edit, Graft, Insert, Replace
from agentcore_patches.patches import registry
from agentcore_patches.plan import EditOutcome, make_plan
from tests.helpers.planning import VERSION, refusal

MODELS = "srt/models.py"
SERVING = "srt/serving.py"

SOURCES = {
    MODELS: b"class Answer:\n    text: str\n\n    def dump(self, data):\n        return data\n",
    SERVING: b"def serve(model):\n    text = model()\n    return text\n",
}

IDS = AddField(MODELS, "Answer", "ids: list = None")
DUMP = Insert(MODELS, "Answer.dump", "log(data)", before="return data")
SERVE = Insert(SERVING, "serve", "text.ids = model.ids", before="return text")
MADE: dict[str, tuple[Edit, ...]] = {
    "alpha": (IDS, SERVE),
    "beta": (IDS, AddField(MODELS, "Answer", "n: int = 0")),
}


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[Edit, ...]]:
    """Patches for two small files, of which serving is to be written first."""
    made = dict(MADE)
    monkeypatch.setattr(registry, "edits", lambda name, version: made[name])
    monkeypatch.setattr(
        registry,
        "files",
        lambda names, version: tuple(
            file
            for file in (SERVING, MODELS)
            if any(edit.file == file for name in names for edit in made[name])
        ),
    )
    return made


def test_a_plan_has_the_new_texts_in_writing_order() -> None:
    plan = make_plan(SOURCES, ("alpha", "beta"), VERSION)
    assert plan.patches == ("alpha", "beta")
    assert list(plan.files.items()) == [
        (
            SERVING,
            b"def serve(model):\n    text = model()\n    text.ids = model.ids\n"
            b"    return text\n",
        ),
        (
            MODELS,
            b"class Answer:\n    text: str\n    ids: list = None\n    n: int = 0\n\n"
            b"    def dump(self, data):\n        return data\n",
        ),
    ]
    assert registry.files(("alpha", "beta"), VERSION) == (SERVING, MODELS)


def test_a_plan_says_of_each_patch_what_each_of_its_edits_found() -> None:
    plan = make_plan(SOURCES, ("alpha", "beta"), VERSION)
    assert plan.outcomes == tuple(
        EditOutcome(patch, edit.file, edit.scope, edit.describe(), "applied")
        for patch in ("alpha", "beta")
        for edit in MADE[patch]
    )


def test_a_selection_needs_and_changes_its_own_files_only() -> None:
    plan = make_plan({MODELS: SOURCES[MODELS]}, ("beta",), VERSION)
    assert list(plan.files) == [MODELS]
    assert registry.files(("beta",), VERSION) == (MODELS,)
    assert {outcome.patch for outcome in plan.outcomes} == {"beta"}


def test_what_holds_already_is_not_planned_again() -> None:
    plan = make_plan(SOURCES, ("alpha", "beta"), VERSION)
    again = make_plan({**SOURCES, **plan.files}, ("alpha", "beta"), VERSION)
    assert again.files == {}
    assert {outcome.outcome for outcome in again.outcomes} == {"present"}


def test_the_sources_stay_as_they_are() -> None:
    sources = dict(SOURCES)
    make_plan(sources, ("alpha", "beta"), VERSION)
    assert sources == SOURCES


def test_one_place_that_is_missing_refuses_all_and_says_what_to_do() -> None:
    message = refusal({**SOURCES, MODELS: b"class Answer: pass\n"}, ["alpha"])
    assert message == (
        f"{MODELS}: in `Answer`, cannot place field `ids: list = None`: "
        "the class declares no fields. Nothing was written. If another tool changed "
        "these sources, put the originals back first (`pip install --force-reinstall "
        "--no-deps sglang==0.5.9`, or `git checkout` in a checkout), then apply again."
    )


def test_a_part_of_the_edits_is_somebody_elses() -> None:
    patched = make_plan(SOURCES, ("alpha",), VERSION).files
    message = refusal({**SOURCES, MODELS: patched[MODELS]}, ["alpha"])
    assert message.startswith(
        f"{MODELS}: `Answer` has field `ids: list = None` already, but {SERVING}: "
        "`serve` lacks `text.ids = model.ids` before `return text`: the sources carry "
        "somebody else's version of this patch, or a part of ours. Nothing was written."
    )


def test_a_text_that_would_not_compile_is_refused(
    registered: dict[str, tuple[Edit, ...]],
) -> None:
    registered["gamma"] = (
        Insert(MODELS, "Answer.dump", "await log(data)", before="return data"),
    )
    message = refusal(SOURCES, ["gamma"])
    assert message.startswith(f"{MODELS} would not compile once patched: ")


UNBOUND = [
    pytest.param(
        "def serve(engine):\n    text = engine()\n    return text\n",
        "serve",
        "model",
        id="a parameter of another name",
    ),
    pytest.param(
        "def serve(x):\n    text = [model for model in x]\n    return text\n",
        "serve",
        "model",
        id="a variable of a comprehension",
    ),
    pytest.param(
        "def other(model): pass\ndef serve(x):\n    text = x\n    return text\n",
        "serve",
        "model",
        id="a parameter of another function",
    ),
    pytest.param(
        "class A:\n    model = 1\n    def serve(x):\n        text = x\n        return text\n",
        "A.serve",
        "model",
        id="a member of the class around",
    ),
    pytest.param(
        "def a():\n    def serve(x):\n        text = x\n        return text\n",
        "a.serve",
        "model",
        id="nothing around",
    ),
]


@pytest.mark.parametrize(("source", "scope", "name"), UNBOUND)
def test_new_code_that_reads_what_nothing_defines_is_refused(
    registered: dict[str, tuple[Edit, ...]], source: str, scope: str, name: str
) -> None:
    registered["gamma"] = (
        Insert(SERVING, scope, "text.ids = model.ids", before="return text"),
    )
    assert refusal({SERVING: source.encode()}, ["gamma"]).startswith(
        f"{SERVING}: in `{scope}`, new code would use `{name}`, which nothing defines."
    )


def test_a_type_that_a_module_does_not_import_is_refused(
    registered: dict[str, tuple[Edit, ...]],
) -> None:
    registered["gamma"] = (AddField(MODELS, "Answer", "ids: Optional[int] = None"),)
    message = refusal(SOURCES, ["gamma"])
    assert "in `Answer`, new code would use `Optional`" in message


def returns(value: Undefined) -> None:  # type: ignore[name-defined] # noqa: F821
    """Refers to something of the module it lands in."""


def test_a_graft_that_needs_what_the_module_lacks_is_refused(
    registered: dict[str, tuple[Edit, ...]],
) -> None:
    registered["gamma"] = (Graft(MODELS, "Answer", returns),)
    message = refusal(SOURCES, ["gamma"])
    assert "in `the module`, new code would use `Undefined`" in message
    lazy = b"from __future__ import annotations\n" + SOURCES[MODELS]
    assert make_plan({MODELS: lazy}, ("gamma",), VERSION).files


BOUND = [
    "def serve(*model):\n    text = model\n    return text\n",
    "model = 1\ndef serve(x):\n    text = x\n    return text\n",
    "from a import b as model\ndef serve(x):\n    text = x\n    return text\n",
    "class model: pass\ndef serve(x):\n    text = x\n    return text\n",
    "def serve(x):\n    global model\n    model = text = x\n    return text\n",
    "def serve(x):\n    text = x if (model := x) else 0\n    return text\n",
    "def serve(x):\n    for model in x: text = x\n    text = 1\n    return text\n",
    "def other():\n    return model\ndef serve(x):\n    text = model\n    return text\n",
]


@pytest.mark.parametrize("source", BOUND)
def test_a_name_that_is_bound_or_was_unbound_before_is_no_hindrance(
    registered: dict[str, tuple[Edit, ...]], source: str
) -> None:
    registered["gamma"] = (SERVE,)
    assert make_plan({SERVING: source.encode()}, ("gamma",), VERSION).files


def test_a_replacement_may_read_what_the_old_statement_read(
    registered: dict[str, tuple[Edit, ...]],
) -> None:
    registered["gamma"] = (
        Replace(SERVING, "serve", "text = model()", "text = model(print)"),
    )
    assert make_plan(SOURCES, ("gamma",), VERSION).files
