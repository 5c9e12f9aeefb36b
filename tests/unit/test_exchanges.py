"""The object that a request shares with its conversions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from agentcore_patches.landing import exchanges
from agentcore_patches.landing.exchanges import Exchange

BaseModel: Any = pytest.importorskip("pydantic").BaseModel


class ChatRequest(BaseModel):  # type: ignore[misc]
    return_token_ids: bool | None = None
    _exchange: Any = exchanges.private()


@pytest.mark.parametrize("request_", [object(), SimpleNamespace(), Mock()])
def test_other_than_chat_requests_have_an_empty_exchange(request_: Any) -> None:
    assert exchanges.of(request_) == Exchange()


def test_each_request_has_its_own_exchange_and_its_copies_share_it() -> None:
    one, other = ChatRequest(), ChatRequest()
    assert one == other
    exchanges.of(one).uses_memory = False
    copied = one.model_copy(update={"return_token_ids": False})
    assert exchanges.of(copied) is exchanges.of(one)
    assert exchanges.of(other).uses_memory is None
    assert "_exchange" not in one.model_dump()
