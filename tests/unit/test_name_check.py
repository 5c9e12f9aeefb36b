"""New code that reads attributes the install does not define."""

from __future__ import annotations

from collections.abc import Callable
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
    Replace,
    ScopedEdit,
)
from agentcore_patches.errors import SourceConflict
from agentcore_patches.planning.name_check import refuse_undefined_attributes

FILE = "srt/managers/manager.py"
BASE = "srt/managers/base.py"
SERVER_ARGS = "srt/server_args.py"

SOURCE = """
    from dataclasses import dataclass
    from fastapi import Request
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
        def run(self, data):
            return data

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
