"""What the functions of modules that land read of SGLang's objects."""

from __future__ import annotations

from textwrap import dedent

import pytest

from agentcore_patches import landed
from agentcore_patches.edits import AddField, Edit, Insert, Land
from agentcore_patches.errors import SourceConflict
from agentcore_patches.undefined import refuse_undefined_attributes

MANAGER = "srt/managers/manager.py"
SERVER_ARGS = "srt/server_args.py"
PROMPTS = "srt/agentcore/prompts.py"

HEAD = """
from __future__ import annotations
from typing import TYPE_CHECKING
from . import other
if TYPE_CHECKING:
    from fastapi import Request
    from sglang.srt.managers.manager import Manager, State as ReqState
"""

READS = {
    "an argument of a class of SGLang": (
        "def check(manager: Manager, n: int): return manager.limit + n.real",
        ["Manager.limit"],
    ),
    "a class that is imported by another name": (
        "def check(*, state: ReqState): return state.obj.rid",
        ["State.obj"],
    ),
    "a class besides None": (
        "def check(manager: Manager | None = None, /): return manager and manager.limit",
        ["Manager.limit"],
    ),
    "a class that a function imports": (
        """
        def check(x):
            from sglang.srt.managers.manager import Child
            def inner(child: Child): return child.size
            return inner(x)
        """,
        ["Child.size"],
    ),
    "what is read to be called, but not what is stored": (
        """
        async def check(manager: Manager):
            manager.stored = 1
            await manager.run(manager.data)
        """,
        ["Manager.run", "Manager.data"],
    ),
    "arguments of other classes, or of none": (
        "def check(request: Request, names: list[Manager], x): request.a, names.b, x.c",
        [],
    ),
    "server arguments": (
        "def check(server_args, x): return server_args.a, x.manager.server_args.b",
        ["server_args.a", "server_args.b"],
    ),
    "functions of the module that a function names": (
        """
        def check(manager): return list(map(inner, manager))
        def inner(manager: Manager): return check, manager.limit
        def uncalled(manager: Manager): return manager.nothing
        """,
        ["Manager.limit"],
    ),
    "methods of a class that a function makes": (
        """
        def check(manager): return Trace(manager).text
        class Trace:
            def __init__(self, manager: Manager): self.limit = manager.limit
            @property
            def text(self): return self.nothing
        """,
        ["Manager.limit"],
    ),
    "functions of other modules that land": (
        "def check(manager): return other.measure(manager), absent.measure, other.absent",
        ["Manager.size of other"],
    ),
}
OTHER = "def measure(manager: Manager): return manager.size"


def land(name: str, code: str) -> Land:
    return Land(f"srt/agentcore/{name}.py", HEAD + dedent(code))


def hook(code: str = "agentcore.prompts.check(self)") -> Insert:
    return Insert(MANAGER, "Manager.run", code, before="return data")


@pytest.mark.parametrize(("code", "expected"), READS.values(), ids=READS)
def test_what_hooks_call_reads(code: str, expected: list[str]) -> None:
    edits = [land("prompts", code), land("other", OTHER), hook()]
    found = []
    for read in landed.reads(edits):
        module = read.module.removeprefix("srt/agentcore/").removesuffix(".py")
        if read.owner is not None:
            assert read.owner[0] == MANAGER
        name = read.owner[1] if read.owner else "server_args"
        of = "" if module == "prompts" else f" of {module}"
        found.append(f"{name}.{read.attribute}{of}")
    assert sorted(found) == sorted(expected)


def test_what_no_hook_calls_is_not_looked_at() -> None:
    prompts = land("prompts", "def check(manager: Manager): return manager.nothing")
    for code in ("agentcore.other.check(self)", "agentcore.prompts", "prompts.check()"):
        assert list(landed.reads([prompts, hook(code)])) == []


FILES = {
    MANAGER: b"class Manager:\n    limit = 1\n    def run(self, data):\n        return data\n",
    SERVER_ARGS: b"class ServerArgs:\n    stream_interval: int = 1\n",
}


def check(code: str, *edits: Edit) -> None:
    """Look at a function of a module that lands, which a hook calls."""
    refuse_undefined_attributes([land("prompts", code), hook(), *edits], {}, FILES.get)


def test_a_class_that_has_the_attribute_is_taken() -> None:
    check("def check(manager: Manager, server_args): manager.limit; manager.run()")
    check("def check(server_args): return server_args.stream_interval")
    reading = "def check(manager: Manager): return manager.added"
    check(reading, AddField(MANAGER, "Manager", "added: int = 0"))
    check(reading, hook("self.added = 1"))


def test_a_class_that_lacks_the_attribute_is_refused() -> None:
    with pytest.raises(SourceConflict) as refused:
        check("def check(manager: Manager): return manager.added")
    assert str(refused.value) == (
        f"{PROMPTS}: `check` would read `added` of `Manager`, which neither it nor a base "
        f"of it defines in {MANAGER}"
    )


def test_server_args_that_lack_the_attribute_are_refused() -> None:
    with pytest.raises(SourceConflict) as refused:
        check("def check(x): return x.server_args.stream_output")
    assert str(refused.value) == (
        f"{PROMPTS}: `check` would read `server_args.stream_output`, which `ServerArgs` in "
        f"{SERVER_ARGS} does not define"
    )


def test_a_class_that_cannot_be_looked_up_may_have_it() -> None:
    check("def check(state: ReqState, server_args): return state.nothing")
    prompts = land("prompts", "def check(manager: Manager): return manager.nothing")
    refuse_undefined_attributes([prompts, hook()], {}, lambda path: None)
