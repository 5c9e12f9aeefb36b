"""The SGLang names that landing functions need, and the refusal without them."""

from __future__ import annotations

from textwrap import dedent

import pytest

from agentcore_patches.edits import AddField, AddParameter, Decorate, Edit, Insert, Land
from agentcore_patches.errors import SourceConflict
from agentcore_patches.patches.paths import FACTS_MODULE
from agentcore_patches.planning import reads
from agentcore_patches.planning.name_check import refuse_undefined_attributes
from agentcore_patches.planning.reads import AttributeNeed, Class

MANAGER = "srt/managers/manager.py"
SERVER_ARGS = "srt/server_args.py"
PROMPTS = "srt/agentcore/prompts.py"

HEAD = """
from __future__ import annotations
from functools import partial, wraps
from importlib import import_module
from operator import attrgetter, methodcaller
from typing import TYPE_CHECKING, Any
from . import other, release
if TYPE_CHECKING:
    from fastapi import Request
    from sglang.srt.managers.manager import Child, Manager, State as ReqState
"""

READS = {
    "an argument of a class of SGLang": (
        "def check(manager: Manager, n: int): return manager.limit + n.real",
        ["Manager.limit"],
    ),
    "a class that is imported by another name": (
        "def check(*, state: ReqState): return state.first.rid",
        ["State.first"],
    ),
    "a class besides None": (
        "def check(manager: Manager | None = None, /): return manager and manager.limit",
        ["Manager.limit"],
    ),
    "one of several classes": (
        "def check(manager: Manager | Child): return manager.limit",
        ["Manager|Child.limit"],
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
    "what is read to be called, and what is stored": (
        """
        async def check(manager: Manager):
            manager.stored = 1
            await manager.run(manager.data)
            manager.count += 1
            manager.parts.more = 1
        """,
        [f"Manager.{name}" for name in ("stored", "run", "data", "count", "parts")],
    ),
    "an object of another class, or of none": (
        "def check(request: Request, x): request.a, x.c",
        [],
    ),
    "the elements of collections": (
        """
        def check(names: list[Manager], by_name: dict[str, Manager]):
            for one in names: one.a
            [one.b for one in names if one.c]
            by_name["x"].d, next(iter(names)).real
            for one in by_name.values(): one.e
        """,
        ["Manager.a", "Manager.b", "Manager.c", "Manager.d", "Manager.e"],
    ),
    "variables": (
        """
        def check(manager: Manager, x: Any):
            other_name = manager
            child: Child = x
            if (third := manager): third.c
            return other_name.a, child.b
        """,
        ["Manager.c", "Manager.a", "Child.b"],
    ),
    "attributes whose class is known by their name": (
        "def check(x, state: ReqState): return x.model_config.a, state.obj.b",
        ["ModelConfig.a", "State.obj", "GenerateReqInput.b"],
    ),
    "objects of classes that land": (
        """
        class Kept:
            def __init__(self, manager: Manager): self.manager = manager
        kept = Kept(None)
        def check(): return kept.manager.limit
        """,
        ["Manager.limit"],
    ),
    "what a function that lands returns": (
        """
        def find() -> Manager | None: ...
        def check(): return find().limit
        """,
        ["Manager.limit"],
    ),
    "server arguments": (
        "def check(server_args, x): return server_args.a, x.manager.server_args.b",
        ["ServerArgs.a", "ServerArgs.b"],
    ),
    "names in strings": (
        """
        def check(manager: Manager):
            getattr(manager, "a"), getattr(manager, "optional", None)
            attrgetter("b")(manager), methodcaller("c")(manager)
            attrgetter(release.PATH)(manager)
        """,
        ["Manager.a", "Manager.b", "Manager.c", "Manager.server_args", "ServerArgs.d"],
    ),
    "no branch that a fact rules out": (
        """
        def check(manager: Manager, x):
            if release.YES: manager.a
            else: manager.nothing
            if not release.NO and manager.b: pass
            release.NO and manager.nothing, release.YES or manager.nothing
            manager.c if release.YES else manager.nothing
            if release.UNKNOWN: manager.d
            if release.YES: return
            manager.nothing
        """,
        ["Manager.a", "Manager.b", "Manager.c", "Manager.d"],
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
    "a class in a function, whose base has what it does not define": (
        """
        def check():
            class Inner(Manager):
                def method(self): return self.method, self.stored, self.limit
                def __init__(self): self.stored = 1
            return Inner()
        """,
        ["Manager.limit"],
    ),
    "functions of other modules that land": (
        "def check(manager): return other.measure(manager), absent.measure, other.absent",
        ["Manager.size of other"],
    ),
}
OTHER = "def measure(manager: Manager): return manager.size"
FACTS = Land(FACTS_MODULE, 'YES = True\nNO = False\nPATH = "server_args.d"\n')


def land(name: str, code: str) -> Land:
    return Land(f"srt/agentcore/{name}.py", HEAD + dedent(code))


def hook(code: str = "agentcore.prompts.check(self)") -> Insert:
    return Insert(MANAGER, "Manager.run", code, before="return data")


@pytest.mark.parametrize(("code", "expected"), READS.values(), ids=READS)
def test_reads_of_called_functions_are_needs(code: str, expected: list[str]) -> None:
    edits = [land("prompts", code), land("other", OTHER), FACTS, hook()]
    found = []
    for need in reads.needs(edits, {}):
        if not isinstance(need, AttributeNeed):
            continue
        module = need.module.removeprefix("srt/agentcore/").removesuffix(".py")
        names = "|".join(owner.name for owner in need.owners)
        of = "" if module == "prompts" else f" of {module}"
        found.append(f"{names}.{need.attribute}{of}")
    assert sorted(found) == sorted(expected)


def test_functions_that_no_hook_calls_are_not_checked() -> None:
    prompts = land("prompts", "def check(manager: Manager): return manager.nothing")
    for code in ("agentcore.other.check(self)", "agentcore.prompts", "prompts.check()"):
        assert list(reads.needs([prompts, hook(code)], {})) == []


def test_attribute_reads_of_unknown_classes_are_listed() -> None:
    code = """
    def check(x: Any, y: Any, z: object):
        y = str(y)
        return x.attribute, y.strip(), z.other, [x.more for x in ()]
    """
    assert list(reads.unresolved({"prompts": HEAD + dedent(code)})) == [
        "prompts.check: x.attribute"
    ]


MODULE = b"""
from dataclasses import dataclass

class Manager:
    limit = 1
    def run(self, data):
        return data
    def ask(self, prompt, *, key, timeout=1):
        return prompt
    @property
    def answer(self):
        return self.limit
    @staticmethod
    def parse(text):
        return text
    async def wait(self, request, n=1):
        yield request
    async def reply(self, request):
        return request
    @classmethod
    def create(cls, request):
        return request

@dataclass
class State:
    limit: int = 0

@dataclass(frozen=True)
class Fixed:
    limit: int
    more: int = field(default=1)
    kind: ClassVar[str]

class Model(BaseModel):
    limit: int = Field(ge=0)
    more: int = Field(default=1)

@dataclass(slots=True)
class Slotted:
    limit: int = 0

class Packed(msgspec.Struct):
    limit: int = 0

class Unpacked(msgspec.Struct, dict=True):
    limit: int = 0

class Child(Manager):
    pass

def build(text, n=1):
    return text
"""
FILES = {MANAGER: MODULE, SERVER_ARGS: b"class ServerArgs:\n    interval: int = 1\n"}


def check(code: str, *edits: Edit) -> None:
    """Check a function of a landing module that a hook calls."""
    refuse_undefined_attributes(
        [land("prompts", code), FACTS, hook(), *edits], {}, FILES.get
    )


def refusal(code: str, *edits: Edit) -> str:
    with pytest.raises(SourceConflict) as refused:
        check(code, *edits)
    return str(refused.value)


def test_a_class_with_the_attribute_is_accepted() -> None:
    check("def check(manager: Manager, server_args): manager.limit; manager.run(1)")
    check("def check(manager: Manager | ReqState): manager.limit")
    check("def check(server_args): return server_args.interval")
    check("def check(child: Child): return child.limit, child.parse('').strip()")
    reading = "def check(manager: Manager): return manager.added"
    check(reading, AddField(MANAGER, "Manager", "added: int = 0"))
    check(reading, Insert(MANAGER, "Manager.__init__", "self.added = 1"))


def test_a_class_that_lacks_the_attribute_is_refused() -> None:
    lacks = "which neither it nor a base of it defines in"
    code = "def check(manager: Manager): return manager.added"
    assert refusal(code) == (
        f"{PROMPTS}: `check` would read `added` of `Manager`, {lacks} {MANAGER}"
    )
    # Each of several classes that the install has must have it.
    code = "def check(manager: Manager | ReqState): return manager.answer"
    assert refusal(code) == (
        f"{PROMPTS}: `check` would read `answer` of `State`, {lacks} {MANAGER}"
    )


def test_server_args_without_the_attribute_are_refused() -> None:
    assert refusal("def check(x): return x.server_args.stream_output") == (
        f"{PROMPTS}: `check` would read `server_args.stream_output`, which `ServerArgs` in "
        f"{SERVER_ARGS} does not define"
    )


def test_a_missing_class_is_refused() -> None:
    code = """
    def check(x: Gone): return x.nothing
    from sglang.srt.managers.manager import Gone
    """
    assert refusal(code) == (
        f"{PROMPTS}: `check` would read `nothing` of `Gone` of {MANAGER}, which is absent"
    )


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("manager.ask(1, key=2)", None),
        ("manager.ask(*x, **x)", None),
        ("manager.ask(prompt=1, key=2, timeout=3)", None),
        ("manager.parse(1)", None),
        ("manager.ask(1, 2, key=3)", "takes only 1 positional arguments"),
        ("manager.ask(1)", "also needs `key`"),
        ("manager.ask(key=1)", "also needs `prompt`"),
        ("manager.ask(1, key=2, limit=3)", "has no parameter `limit`"),
        ("manager.parse(1, 2)", "takes only 1 positional arguments"),
        ("State(limit=1)", None),
        ("State(nothing=1)", "pass `nothing=` to `State.__init__`"),
        ("build(1, n=2)", None),
        ("build(1, 2, 3)", "takes only 2 positional arguments"),
        ("build(1, m=2)", "has no parameter `m`"),
        ("Fixed(1)", None),
        ("Fixed(more=1)", "`Fixed.__init__` of srt/managers/manager.py, which also "),
        ("Model(limit=1)", None),
        ("Model(more=1)", "which also needs `limit`"),
        ("await manager.reply(1)", None),
        ("asyncio.create_task(manager.reply(1))", None),
        ("manager.reply(1)", "`Manager.reply` of srt/managers/manager.py, which is a "),
        ("manager.wait(1)", None),
        ("await manager.wait(1)", "which is no coroutine"),
        ("await manager.parse(1)", "which is no coroutine"),
        ("manager.answer()", "which is a property"),
    ],
)
def test_a_call_must_match_the_functions_signature(code: str, said: str | None) -> None:
    function = f"""
    async def check(manager: Manager, x):
        from sglang.srt.managers.manager import Fixed, Model, State, build
        return {code}
    """
    if said is None:
        check(function)
    else:
        assert said in refusal(function)


@pytest.mark.parametrize(
    ("kind", "code", "said"),
    [
        ("State", "x.limit = 1", None),
        ("State", "setattr(x, 'limit', 1)", None),
        ("State", "x.other = 1", "store `other` of `State`, which neither it nor"),
        ("State", "setattr(x, 'other', 1)", "store `other` of `State`"),
        ("Fixed", "x.limit = 1", "store `limit` of `Fixed` of .*, which is frozen"),
        ("State", "vars(x)['other'] = 1", None),
        ("Unpacked", "vars(x)['other'] = 1", None),
        ("Slotted", "vars(x)['other'] = 1", "add an attribute to a `Slotted`"),
        ("Packed", "vars(x)['other'] = 1", "add an attribute to a `Packed`"),
    ],
)
def test_an_attribute_that_is_stored_must_be_there(
    kind: str, code: str, said: str | None
) -> None:
    function = f"""
    def check(x: {kind}):
        from sglang.srt.managers.manager import {kind}
        {code}
    """
    if said is None:
        check(function)
        return
    with pytest.raises(SourceConflict, match=said):
        check(function)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("from sglang.srt.managers.manager import Manager", None),
        ("from sglang.srt.managers import manager", None),
        ("import_module('sglang.srt.managers.manager').Manager", None),
        ("from sglang.srt.managers.manager import Gone", "import `Gone` of"),
        ("from sglang.srt.gone import Manager", "import sglang.srt.gone, which is"),
        ("import_module('sglang.srt.gone')", "import sglang.srt.gone, which is absent"),
        ("import_module('sglang.srt.managers.manager').gone", "read `gone` of"),
        ("if release.NO: from sglang.srt.gone import Manager", None),
    ],
)
def test_an_import_must_exist(code: str, said: str | None) -> None:
    function = f"def check(x):\n    {code}"
    if said is None:
        check(function)
    else:
        assert said in refusal(function)


WRAPPER = """
def traced(function):
    @wraps(function)
    {kind}def wrapper({parameters}):
        {body}
    return wrapper
"""
LEADING = "self, request, *args, **kwargs"


@pytest.mark.parametrize(
    ("scope", "kind", "parameters", "body", "said"),
    [
        ("wait", "", LEADING, "return function(self, request, *args)", None),
        ("wait", "", "*args, **kwargs", "return function(*args, **kwargs)", None),
        (
            "run",
            "",
            LEADING,
            "",
            "first parameters are self, data and not self, request",
        ),
        ("wait", "", "*args", "bound.arguments['n']", None),
        ("wait", "", "*args", "bound.arguments['m']", "has no parameter `m`"),
        ("wait", "", LEADING, "function(self, trace=1)", "has no parameter `trace`"),
        ("wait", "", LEADING, "partial(function, n=1)", None),
        ("wait", "", LEADING, "partial(function, m=1)", "has no parameter `m`"),
        ("reply", "async ", LEADING, "return await function(self, request)", None),
        ("run", "async ", "*args", "return await function(*args)", "is no coroutine"),
        ("wait", "async ", "*args", "return await function(*args)", "is no coroutine"),
        ("reply", "", LEADING, "return function(self, request)", "is a coroutine"),
        ("create", "", "*args", "return function(*args)", "is a classmethod"),
        ("run", "", "self, *args", "return self.limit", None),
        ("run", "", "self, *args", "return self.nothing", "`nothing` of `Manager`"),
    ],
)
def test_a_decorator_must_fit_its_function(
    scope: str, kind: str, parameters: str, body: str, said: str | None
) -> None:
    code = WRAPPER.format(kind=kind, parameters=parameters, body=body or "pass")
    edit = Decorate(
        MANAGER, f"Manager.{scope}", "agentcore.prompts.traced", name="ids/stream"
    )
    edits = [land("prompts", code), FACTS, edit]
    if said is None:
        refuse_undefined_attributes(edits, {}, FILES.get)
        return
    with pytest.raises(SourceConflict) as refused:
        refuse_undefined_attributes(edits, {}, FILES.get)
    assert said in str(refused.value)
    assert "(ids/stream)" in str(refused.value)


def test_a_parameter_that_another_hook_adds_may_be_passed() -> None:
    code = WRAPPER.format(
        kind="", parameters=LEADING, body="return function(self, request, trace=1)"
    )
    edits = [
        land("prompts", code),
        FACTS,
        Decorate(MANAGER, "Manager.wait", "agentcore.prompts.traced"),
        AddParameter(MANAGER, "Manager.wait", "trace: Any = None"),
    ]
    refuse_undefined_attributes(edits, {}, FILES.get)


def test_a_need_names_its_hook() -> None:
    edit = Insert(
        MANAGER, "Manager.run", "agentcore.prompts.check(self)", name="ids/field"
    )
    prompts = land("prompts", "def check(manager: Manager): return manager.limit")
    [need] = reads.needs([prompts, edit], {})
    assert need == AttributeNeed(
        "ids/field", PROMPTS, "check", (Class(MANAGER, "Manager"),), "limit"
    )
