"""Records of a request: copied with it, and never sent to another process."""

from __future__ import annotations

import copy
import pickle
from types import SimpleNamespace
from typing import Any

from agentcore_patches.landing.http import exchanges
from agentcore_patches.landing.http.exchanges import Prefilled


def test_a_copy_keeps_the_prompt_when_the_request_forgets_it() -> None:
    obj: Any = SimpleNamespace(rid="a")
    exchanges.note(obj, suffixes={"a": "s"}, prefilled=Prefilled(2, [5, 6]))
    sample = copy.copy(obj)
    exchanges.note(obj, prefilled=Prefilled(2))
    assert exchanges.call_of(sample).prefilled == (2, [5, 6])
    assert exchanges.call_of(obj).suffixes == {"a": "s"}


def test_a_pickled_request_takes_nothing_along() -> None:
    obj: Any = SimpleNamespace(rid="a")

    async def outputs() -> Any:
        yield {}

    started = exchanges.Started({}, outputs())
    exchanges.note(obj, prefilled=Prefilled(1), started=started)
    data = pickle.dumps(obj)
    assert b"agentcore" not in data
    assert exchanges.call_of(pickle.loads(data)) == exchanges.Call()
