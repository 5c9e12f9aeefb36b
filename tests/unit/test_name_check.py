"""Lookups in the classes of an install, and variables that hooks update."""

from __future__ import annotations

from textwrap import dedent

import pytest

from agentcore_patches.edits import AddField, AddMethod, Edit, Insert
from agentcore_patches.errors import SourceConflict
from agentcore_patches.planning.classes import Install, Unresolved
from agentcore_patches.planning.name_check import refuse_unbound_updates

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
            return data

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
    FILE: dedent(SOURCE).encode(),
    BASE: dedent(BASE_SOURCE).encode(),
    SERVER_ARGS: dedent(SERVER_ARGS_SOURCE).encode(),
    "srt/arg_groups/fields/serving.py": b"class Serving:\n    declared: int = 1\n",
}


def has(owner: str, attribute: str, *edits: Edit, file: str = FILE) -> bool:
    install = Install({}, FILES.get, edits)
    found = install.find(file, owner)
    assert found is not None
    return install.has_attribute(found, attribute)


@pytest.mark.parametrize(
    ("owner", "defined", "undefined"),
    [
        ("Manager", "limit kind server_args first second size run __class__", "other"),
        ("Manager", "helper state mixed", "cached_size"),
        ("Child", "helper limit", "nothing"),
        ("Relative", "state", "limit"),
        ("Model", "text model_dump", "limit"),
        ("Dynamic", "anything", ""),
        ("Conditional", "conditional", "nothing"),
        ("Outer.Inner", "inner_field", "field"),
        ("ServerArgs", "stream_interval late url declared", "local"),
    ],
)
def test_attributes_are_declared_assigned_or_inherited(
    owner: str, defined: str, undefined: str
) -> None:
    file = SERVER_ARGS if owner == "ServerArgs" else FILE
    assert all(has(owner, name, file=file) for name in defined.split())
    assert not any(has(owner, name, file=file) for name in undefined.split())


def test_edits_add_attributes_to_their_class() -> None:
    for edit in (
        AddField(FILE, "Manager", "added: int = 0"),
        AddMethod(FILE, "Manager", "def added(self): ..."),
        Insert(FILE, "Manager.__init__", "self.added = 1"),
    ):
        assert has("Manager", "added", edit) and has("Child", "added", edit)
        assert not has("Relative", "added", edit)
    assert not has("Manager", "added", Insert(FILE, "Manager.run", "self.added = 1"))


def test_a_base_that_cannot_be_looked_up_is_named() -> None:
    with pytest.raises(Unresolved) as refused:
        has("Foreign", "anything")
    assert str(refused.value) == (
        f"`anything` of `Foreign`, whose base `Request` cannot be looked up from {FILE}"
    )


@pytest.mark.parametrize(
    ("code", "updated"),
    [
        ("count += 1; data = f(data); agentcore_new = 0", ""),
        ("for item in data: count = g(count)", "item"),
        ("renamed += 1", "renamed"),
        ("renamed = f(renamed)", "renamed"),
        ("if renamed: renamed = 1", "renamed"),
        ("for renamed in renamed: pass", "renamed"),
    ],
)
def test_a_hook_updates_only_variables_of_its_function(code: str, updated: str) -> None:
    hook = Insert(FILE, "Manager.run", code, name="ids/keep")
    install = Install({}, FILES.get, [hook])
    if not updated:
        refuse_unbound_updates([hook], install)
        return
    with pytest.raises(SourceConflict) as refused:
        refuse_unbound_updates([hook], install)
    assert str(refused.value) == (
        f"{FILE}: in `Manager.run`, new code (ids/keep) would update `{updated}`, which "
        "the function does not have"
    )
