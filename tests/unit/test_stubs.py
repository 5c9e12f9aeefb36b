"""The stubs of SGLang, and the refusal of an install that lacks a name in them."""

from __future__ import annotations

import ast
from pathlib import Path
from textwrap import dedent

import pytest

from agentcore_patches.edits import AddField, Decorate, Edit, Insert, Land
from agentcore_patches.errors import SourceConflict
from agentcore_patches.planning import stubs
from agentcore_patches.planning.classes import Install

MANAGER = "srt/managers/manager.py"
BASE = "srt/managers/base.py"
PROMPTS = "srt/agentcore/prompts.py"

SGLANG = """
    from dataclasses import dataclass
    if TYPE_CHECKING:
        from sglang.srt.managers.base import Base, Elsewhere

    limit: int = 1

    class Manager(Base):
        kind = "manager"
        def __init__(self):
            self.first, self.second = 1, 2
        def run(self, data):
            self.count: int
            return self.only_read
        def ask(self, prompt, *, key, timeout=1): ...
        @property
        def answer(self): ...
        @staticmethod
        def parse(text): ...
        async def reply(self, request): ...
        async def stream(self, request, n=1):
            yield request
        def call(self, *args, **kwargs): ...

    @dataclass
    class State:
        limit: int
        more: int = 0

    @dataclass(frozen=True)
    class Fixed:
        limit: int

    class Packed(msgspec.Struct):
        limit: int

    class Foreign(Request):
        limit: int

    class Model(BaseModel): ...

    class Dynamic:
        def __getattr__(self, name): ...

    class Conditional(Elsewhere):
        class Inner:
            inside: int

    def build(text, n=1): ...
"""
BASE_SGLANG = """
    class Base:
        def inherited(self): ...
    if HAS_GPU:
        class Elsewhere:
            there: int
"""
FILES = {
    MANAGER: dedent(SGLANG).encode(),
    BASE: dedent(BASE_SGLANG).encode(),
}


def check(monkeypatch: pytest.MonkeyPatch, stub: str, *edits: Edit) -> None:
    """Check a stub of the manager's module against it.

    A landing module uses all of its names.
    """
    found = tuple(stubs.uses_in(dedent(stub), MANAGER))
    monkeypatch.setattr(stubs, "uses", lambda: found)
    names = (f"x.{use.name}, {use.owner}" for use in found)
    landing = Land(PROMPTS, "\n".join(names))
    refuse(landing, *edits)


def refuse(*edits: Edit) -> None:
    stubs.refuse_missing(edits, Install({}, FILES.get, edits), "0.5.10")


def refusal(monkeypatch: pytest.MonkeyPatch, stub: str, *edits: Edit) -> str:
    with pytest.raises(SourceConflict) as refused:
        check(monkeypatch, stub, *edits)
    return str(refused.value)


def of_manager(*members: str) -> str:
    return "\n    ".join(["class Manager:", *members])


def of_state(parameters: str) -> str:
    return f"class State:\n    limit: int\n    def __init__(self, *, {parameters}): ..."


@pytest.mark.parametrize(
    "stub",
    [
        "limit: int",
        of_manager("kind: str", "first: int", "second: int", "count: int"),
        of_manager("answer: int", "def inherited(self): ...", "__dict__: Any"),
        of_manager("@property", "def kind(self): ..."),
        of_manager("nothing: int  # since 0.5.11", "never: int  # until 0.5.9"),
        "class Nothing:  # until 0.5.9\n    member: int",
        "class Elsewhere:\n    there: int",
        of_state("limit"),
        "class Fixed:\n    @property\n    def limit(self): ...",
        "class Foreign:\n    limit: int",
        "class Model:\n    model_dump: int",
        "class Dynamic:\n    anything: int",
        "class Conditional:\n    there: int",
        "def build(text, n): ...",
        of_manager("def ask(self, prompt, *, key): ..."),
        of_manager("def parse(self, text): ...", "async def reply(self, request): ..."),
        of_manager("def run(self, other, /): ...", "def stream(self, request): ..."),
    ],
)
def test_names_that_the_install_has_are_accepted(
    monkeypatch: pytest.MonkeyPatch, stub: str
) -> None:
    check(monkeypatch, stub)


@pytest.mark.parametrize(
    ("stub", "said"),
    [
        ("other: int", f"`other` of {MANAGER}, which is absent"),
        ("class Other:\n    n: int", f"`Other` of {MANAGER}, which is absent"),
        (
            of_manager("nothing: int"),
            "`Manager`, which neither it nor a base of it def",
        ),
        (of_manager("only_read: int"), "`only_read` of `Manager`, which neither"),
        (of_manager("nothing: int  # since 0.5.10"), "`nothing` of `Manager`"),
        (of_manager("run: int"), "`run` of `Manager`, which is a method"),
        (of_manager("def answer(self): ..."), "which is a property"),
        (of_manager("async def parse(self, text): ..."), "which is no coroutine"),
        (of_manager("def reply(self, request): ..."), "which is a coroutine"),
        (of_manager("def run(self): ..."), "which also needs `data`"),
        (of_manager("def ask(self, prompt): ..."), "which also needs `key`"),
        (of_manager("def run(self, data, n): ..."), "takes only 1 positional"),
        (of_manager("def run(self, other): ..."), "has `data` in place of the param"),
        (of_manager("def run(self, data, *, n): ..."), "has no parameter `n`"),
        ("def build(n, text): ...", "has `text` in place of the parameter `n`"),
        (of_state("more"), f"`State` of {MANAGER}, which also needs `limit`"),
        (of_state("limit, other"), f"`State` of {MANAGER}, which has no field `other`"),
        ("class Fixed:\n    limit: int", "which is frozen"),
        ("class Conditional:\n    inside: int", "`Conditional`, which neither"),
        ("class Packed:\n    __dict__: Any", "which takes no other attributes"),
        ("class Foreign:\n    other: int", "whose base `Request` cannot be looked up"),
    ],
)
def test_names_that_the_install_lacks_are_refused(
    monkeypatch: pytest.MonkeyPatch, stub: str, said: str
) -> None:
    refused = refusal(monkeypatch, stub)
    assert refused.startswith(f"{PROMPTS} would use ")
    assert said in refused


def test_names_that_no_landing_module_uses_are_not_looked_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unused = tuple(stubs.uses_in("class Gone:\n    nothing: int", MANAGER))
    monkeypatch.setattr(stubs, "uses", lambda: unused)
    landing = Land(PROMPTS, "def check(manager): return manager.limit")
    refuse(landing)


def test_names_that_edits_add_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    stub = of_manager("added: int")
    check(monkeypatch, stub, AddField(MANAGER, "Manager", "added: int = 0"))
    check(monkeypatch, stub, Insert(MANAGER, "Manager.__init__", "self.added = 1"))
    assert "`added` of `Manager`" in refusal(monkeypatch, stub)


def test_a_hook_that_decorates_a_function_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = tuple(stubs.uses_in(of_manager("def run(self, request): ..."), MANAGER))
    monkeypatch.setattr(stubs, "uses", lambda: found)
    hook = Decorate(MANAGER, "Manager.run", "agentcore.prompts.kept", name="ids/keep")
    landing = Land(PROMPTS, "def kept(function): ...")
    with pytest.raises(SourceConflict) as refused:
        refuse(landing, hook)
    assert str(refused.value) == (
        f"{MANAGER}: in `Manager.run`, new code (ids/keep) would use `run` of `Manager`, "
        f"which has `data` in place of the parameter `request` in {MANAGER}"
    )


def test_every_module_of_sglang_that_landing_code_imports_has_a_stub() -> None:
    """mypy knows nothing of a module without one, and checks nothing of it."""
    landing = Path(stubs.__file__).parents[1] / "landing"
    modules = {
        node.module
        for path in landing.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sglang")
    }
    assert modules
    for module in modules - {"sglang.srt.managers"}:
        assert module is not None
        path = stubs.FOLDER.joinpath(*module.split(".")[1:]).with_suffix(".pyi")
        assert path.is_file(), module
