"""New code, and landing code by its stubs, that uses names the install does not define."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from agentcore_patches.edits import (
    AddCondition,
    AddField,
    AddKeyword,
    AddMethod,
    AddParameter,
    Decorate,
    Edit,
    Insert,
    Land,
    Replace,
    ScopedEdit,
)
from agentcore_patches.errors import SourceConflict
from agentcore_patches.planning import stubs
from agentcore_patches.planning.name_check import refuse_undefined_attributes

FILE = "srt/managers/manager.py"
BASE = "srt/managers/base.py"
SERVER_ARGS = "srt/server_args.py"

SOURCE = """
    from dataclasses import dataclass
    from fastapi import Request
    if TYPE_CHECKING:
        from sglang.srt.managers.base import Elsewhere
    from pydantic import BaseModel
    from sglang.srt.managers.base import Base, Mixin as BaseMixin
    from .base import Base as Sibling

    class Manager(BaseMixin, Base):
        limit: int = 3
        kind = "manager"

        def __init__(self, server_args):
            self.server_args = server_args
            self.first, self.second = 1, 2

        def run(self, data):
            count = 0
            log(data)
            return data

        def assist(self, one, two): ...
        def look(self):
            self.count: int
            return self.only_read
        def ask(self, prompt, *, key, timeout=1): ...
        @staticmethod
        def parse(text): ...
        async def reply(self, request): ...
        async def stream(self, request, n=1):
            yield request
        def call(self, *args, **kwargs): ...

        @property
        def size(self):
            return self.cached_size

    class Child(Manager):
        def run(self, data):
            return data

    class Relative(Sibling):
        def run(self, data):
            return data

    class Model(BaseModel):
        text: str
        def run(self, data):
            return data

    class Foreign(Request):
        limit: int
        def run(self, data):
            return data

    @dataclass
    class State:
        limit: int
        more: int = 0

    @dataclass(frozen=True)
    class Fixed:
        limit: int

    class Packed(msgspec.Struct):
        limit: int

    limit: int = 1

    def build(text, n=1): ...

    if TYPE_CHECKING:
        pass
    else:
        try:
            from sglang.srt.managers.base import Sometimes
        except ImportError:
            Sometimes = object

    class Conditional(Sometimes):
        def run(self, data):
            return log.known_attribute(data)

    class Dynamic:
        def __getattr__(self, name):
            return name
        def run(self, data):
            return data

    class Outer:
        field: int = 0
        class Inner:
            inner_field: int = 0
            def run(self, data):
                return data

    def run(self, data):
        return data
"""
BASE_SOURCE = """
    class Base:
        def helper(self):
            self.state = {}
        def inherited(self): ...

    class Elsewhere:
        there: int

    class Mixin:
        mixed = True

    if HAS_GPU:
        class Sometimes:
            conditional = True
"""
SERVER_ARGS_SOURCE = """
    from sglang.srt.arg_groups.fields.serving import Serving

    class ServerArgs:
        stream_interval: int = 1

        def __post_init__(self):
            self.late = 1

        def url(self):
            local = 2
"""
FILES = {
    BASE: dedent(BASE_SOURCE).encode(),
    SERVER_ARGS: dedent(SERVER_ARGS_SOURCE).encode(),
    "srt/arg_groups/fields/serving.py": b"class Serving:\n    declared: int = 1\n",
}


def check(
    *edits: Edit,
    source: str = SOURCE,
    read: Callable[[str], bytes | None] = FILES.get,
) -> None:
    refuse_undefined_attributes(edits, {FILE: dedent(source).encode()}, read, "0.5.9")


def insert(code: str, scope: str = "Manager.run") -> ScopedEdit:
    return Insert(FILE, scope, code, before="return data")


METHOD = AddMethod(FILE, "Manager", "def method(self):\n    return self.nothing")

IN_RUN = FILE, "Manager.run"

DEFINED = [
    insert("self.limit, self.kind, self.server_args, self.second, self.size"),
    insert("self.cached_size, self.run, self.__class__"),
    insert("log(self.helper, self.state, self.mixed)"),
    insert("self.limit = 1"),
    # The constructor may store new attributes.
    insert("self.other = 1\nself.other += 1", "Manager.__init__"),
    insert("log.known_attribute; other.self.nothing"),
    insert("data.append(1); data.items(); ' '.strip()"),
    insert("log('self.nothing')"),
    insert("log(self.helper, self.limit)", "Child.run"),
    insert("self.state", "Relative.run"),
    insert("self.text, self.model_dump()", "Model.run"),
    insert("self.anything", "Dynamic.run"),
    insert("self.conditional", "Conditional.run"),
    insert("self.inner_field", "Outer.Inner.run"),
    insert("self.anything", "run"),
    insert("server_args.stream_interval, self.server_args.late"),
    insert("self.first.server_args.url(), server_args.declared"),
    insert("self.assist(1, 2); self.assist(*data)"),
    insert("count += 1; data = f(data); new = 0; new += 1"),
    insert("for item in data: count = g(count)"),
    insert("data = [item for item in data]"),
]


def undefined(attribute: str, owner: str) -> str:
    return f"read `{attribute}`, which neither `{owner}` nor a base of it defines"


REFUSED = [
    (insert("self.limit_"), undefined("self.limit_", "Manager")),
    (insert("self.nothing()", "Child.run"), undefined("self.nothing", "Child")),
    (insert("self.limit", "Relative.run"), undefined("self.limit", "Relative")),
    (insert("self.limit", "Model.run"), undefined("self.limit", "Model")),
    (insert("self.field", "Outer.Inner.run"), undefined("self.field", "Outer.Inner")),
    (
        insert("self.nothing", "Conditional.run"),
        undefined("self.nothing", "Conditional"),
    ),
    *(
        (edit, undefined("self.nothing", "Manager"))
        for edit in (
            insert("self.nothing"),
            insert("log(lambda: [self.nothing for _ in data])"),
            insert("self.nothing += 1"),
            Replace(*IN_RUN, "log(data)", "log(self.nothing)"),
            AddKeyword(*IN_RUN, "log", "key=self.nothing"),
            AddCondition(*IN_RUN, "if data: ...", "self.nothing"),
            AddParameter(*IN_RUN, "key=self.nothing"),
            Decorate(*IN_RUN, "self.nothing"),
            METHOD,
        )
    ),
    *(
        (insert(f"log({owner}.local)"), undefined("server_args.local", "ServerArgs"))
        for owner in ("server_args", "self.first.server_args")
    ),
    (insert("self.assist(1, 2, 3)"), "call `assist`, which takes only 2"),
    (insert("self.assist(1)"), "call `assist`, which also needs"),
    (insert("self.assist(1, key=2)"), "call `assist`, which has no parameter `key`"),
    (insert("self.nothing = 1"), "store `self.nothing`"),
    (insert("self.server_args.nothing = 1"), "store `server_args.nothing`"),
    (insert("renamed += 1"), "update `renamed`"),
    (insert("renamed = f(renamed)"), "update `renamed`"),
    (insert("if renamed: renamed = 1"), "update `renamed`"),
    (insert("for renamed in renamed: pass"), "update `renamed`"),
    (
        insert("log(data.renamed)"),
        "read `data.renamed`, which nothing in the file uses",
    ),
]


@pytest.mark.parametrize(
    ("edit", "problem"), [*((edit, None) for edit in DEFINED), *REFUSED]
)
def test_new_code_uses_only_what_is_defined(
    edit: ScopedEdit, problem: str | None
) -> None:
    if problem is None:
        check(edit)
        return
    with pytest.raises(SourceConflict) as refused:
        check(edit)
    where = f"{FILE}: in `{edit.scope}`"
    assert str(refused.value).startswith(f"{where}, new code would {problem}")


def test_names_added_by_other_edits_can_be_read() -> None:
    reading = insert("self.added; self.more; self.method(); self.stored")
    check(
        AddField(FILE, "Manager", "added: int = 0\nmore: int = 0"),
        METHOD,
        insert("self.stored = 1\nself.nothing = 2", "Manager.__init__"),
        reading,
    )
    for edits in (
        [AddField(FILE, "Child", "added: int = 0"), insert("self.added")],
        [AddField(BASE, "Other", "added: int = 0"), insert("self.added")],
    ):
        with pytest.raises(SourceConflict, match=r"`self\.added`"):
            check(*edits)


@pytest.mark.parametrize(
    ("edit", "problem", "file"),
    [
        (
            insert("self.anything", "Foreign.run"),
            "`anything` of `Foreign`, whose base `Request`",
            FILE,
        ),
        (
            insert("self.nothing"),
            "`nothing` of `Manager`, whose base `BaseMixin`",
            FILE,
        ),
        (
            insert("server_args.nothing"),
            "`nothing` of `ServerArgs`, whose base `ServerArgs`",
            SERVER_ARGS,
        ),
    ],
)
def test_names_that_cannot_be_looked_up_are_refused(
    edit: ScopedEdit, problem: str, file: str
) -> None:
    with pytest.raises(SourceConflict) as refused:
        check(edit, read=lambda path: None)
    assert str(refused.value) == (
        f"{FILE}: in `{edit.scope}`, new code would read {problem} cannot be looked up "
        f"from {file}"
    )


def test_an_attribute_of_a_variable_is_known_by_edits() -> None:
    check(AddField(FILE, "Child", "renamed: int = 0"), insert("log(data.renamed)"))
    check(
        AddParameter(*IN_RUN, "trace=None"), insert("trace.push(data)\nown = 1\nown.x")
    )


# Stubs

PROMPTS = "srt/agentcore/prompts.py"
SGLANG = {FILE: dedent(SOURCE).encode(), **FILES}


def check_stub(monkeypatch: pytest.MonkeyPatch, stub: str, *edits: Edit) -> None:
    """Check a stub of the manager's module against it.

    A landing module uses all of its names.
    """
    found = tuple(stubs.uses_in(dedent(stub), FILE))
    monkeypatch.setattr(stubs, "uses", lambda: found)
    names = (f"x.{use.name}, {use.owner and use.owner.name}" for use in found)
    landing = Land(PROMPTS, "\n".join(names))
    refuse_undefined_attributes([landing, *edits], {}, SGLANG.get, "0.5.10")


def refusal_of_stub(monkeypatch: pytest.MonkeyPatch, stub: str, *edits: Edit) -> str:
    with pytest.raises(SourceConflict) as refused:
        check_stub(monkeypatch, stub, *edits)
    return str(refused.value)


def of_manager(*members: str) -> str:
    return "\n    ".join(["class Manager:", *members])


def of_state(parameters: str) -> str:
    return f"class State:\n    limit: int\n    def __init__(self, *, {parameters}): ..."


@pytest.mark.parametrize(
    ("stub", "said"),
    [
        *(
            (stub, "")
            for stub in (
                "limit: int",
                of_manager("kind: str", "first: int", "second: int", "count: int"),
                of_manager("size: int", "def inherited(self): ...", "__dict__: Any"),
                of_manager("@property", "def kind(self): ..."),
                of_manager("nothing: int  # since 0.5.11", "never: int  # until 0.5.9"),
                "class Nothing:  # until 0.5.9\n    member: int",
                "class Elsewhere:\n    there: int",
                of_state("limit"),
                "class Fixed:\n    @property\n    def limit(self): ...",
                "class Foreign:\n    limit: int",
                "def build(text, n): ...",
                of_manager("def ask(self, prompt, *, key): ..."),
                of_manager(
                    "def parse(self, text): ...", "async def reply(self, request): ..."
                ),
                of_manager(
                    "def run(self, other, /): ...", "def stream(self, request): ..."
                ),
            )
        ),
        ("other: int", f"`other` of {FILE}, which is absent"),
        ("class Other:\n    n: int", f"`Other` of {FILE}, which is absent"),
        (
            of_manager("nothing: int"),
            "`Manager`, which neither it nor a base of it def",
        ),
        (of_manager("only_read: int"), "`only_read` of `Manager`, which neither"),
        (of_manager("nothing: int  # since 0.5.10"), "`nothing` of `Manager`"),
        (of_manager("run: int"), "`run` of `Manager`, which is a method"),
        (of_manager("def size(self): ..."), "which is a property"),
        (of_manager("async def parse(self, text): ..."), "which is no coroutine"),
        (of_manager("def reply(self, request): ..."), "which is a coroutine"),
        (of_manager("def run(self): ..."), "which also needs `data`"),
        (of_manager("def ask(self, prompt): ..."), "which also needs `key`"),
        (of_manager("def run(self, data, n): ..."), "takes only 1 positional"),
        (of_manager("def run(self, other): ..."), "has `data` in place of the param"),
        (of_manager("def run(self, data, *, n): ..."), "has no parameter `n`"),
        ("def build(n, text): ...", "has `text` in place of the parameter `n`"),
        (of_state("more"), f"`State` of {FILE}, which also needs `limit`"),
        (of_state("limit, other"), f"`State` of {FILE}, which has no field `other`"),
        ("class Fixed:\n    limit: int", "which is frozen"),
        ("class Packed:\n    __dict__: Any", "which takes no other attributes"),
        ("class Foreign:\n    other: int", "whose base `Request` cannot be looked up"),
    ],
)
def test_names_that_the_install_lacks_are_refused(
    monkeypatch: pytest.MonkeyPatch, stub: str, said: str
) -> None:
    if not said:
        check_stub(monkeypatch, stub)
        return
    refused = refusal_of_stub(monkeypatch, stub)
    assert refused.startswith(f"{PROMPTS} would use ")
    assert said in refused


def test_names_that_no_landing_module_uses_are_not_looked_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unused = tuple(stubs.uses_in("class Gone:\n    nothing: int", FILE))
    monkeypatch.setattr(stubs, "uses", lambda: unused)
    landing = Land(PROMPTS, "def check(manager): return manager.limit")
    refuse_undefined_attributes([landing], {}, SGLANG.get, "0.5.10")


def test_names_that_edits_add_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    stub = of_manager("added: int", "def run(self, *args, trace, **kwargs): ...")
    field = AddField(FILE, "Manager", "added: int = 0")
    parameter = AddParameter(FILE, "Manager.run", "trace: Any = None")
    check_stub(monkeypatch, stub, field, parameter)
    stored = Insert(FILE, "Manager.__init__", "self.added = 1")
    check_stub(monkeypatch, stub, stored, parameter)
    assert "`added` of `Manager`" in refusal_of_stub(monkeypatch, stub, parameter)
    assert "has no parameter `trace`" in refusal_of_stub(monkeypatch, stub, field)


def test_a_hook_that_decorates_a_function_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = tuple(stubs.uses_in(of_manager("def run(self, request): ..."), FILE))
    monkeypatch.setattr(stubs, "uses", lambda: found)
    hook = Decorate(FILE, "Manager.run", "agentcore.prompts.kept", name="ids/keep")
    landing = Land(PROMPTS, "def kept(function): ...")
    with pytest.raises(SourceConflict) as refused:
        refuse_undefined_attributes([landing, hook], {}, SGLANG.get, "0.5.10")
    assert str(refused.value) == (
        f"{FILE}: in `Manager.run`, new code (ids/keep) would use `run` of `Manager`, "
        f"which has `data` in place of the parameter `request` in {FILE}"
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
