"""The object that a request shares with its conversions, and its fields by endpoint."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from agentcore_patches.landing import (
    conversations,
    exchanges,
    prefix,
    release,
    response_turns,
    responses,
)
from agentcore_patches.landing.exchanges import Exchange

fastapi = pytest.importorskip("fastapi")
BaseModel: Any = pytest.importorskip("pydantic").BaseModel

SERVING: Any = SimpleNamespace(
    reasoning_parser=None,
    use_harmony=False,
    create_error_response=lambda message, **_: message,
    tokenizer_manager=SimpleNamespace(
        server_args=SimpleNamespace(
            stream_output=False,
            skip_tokenizer_init=False,
            dllm_algorithm=None,
            speculative_algorithm=None,
        )
    ),
)


class ChatRequest(BaseModel):  # type: ignore[misc]
    messages: tuple[Any, ...] = ()
    required_prefix_token_ids: list[Any] | None = None
    extra_key: str | None = None
    cache_salt: str | None = None
    return_token_ids: bool | None = None
    _exchange: Any = exchanges.private()


def response_request(**more: Any) -> Any:
    fields = {
        "required_prefix_token_ids": None,
        "previous_response_id": None,
        "return_token_ids": None,
        "background": False,
        "stream": False,
        "extra_key": "k",
        "cache_salt": "s",
    }
    return SimpleNamespace(**{**fields, **more})


@pytest.fixture(autouse=True)
def _traced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "RESPONSES_ARE_TRACED", True)


def process(chat_request: ChatRequest) -> Any:
    """Process messages like chat, with the prefix in front."""
    processed: Any = prefix.continued(lambda serving, request: SimpleNamespace())
    return processed(SERVING, chat_request)


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


def test_a_response_shares_its_exchange_with_its_chat_request() -> None:
    request = response_request(return_token_ids=True)
    seen: list[Any] = []

    async def create(self: Any, request: Any, raw_request: Any) -> Any:
        chat_request = ChatRequest()
        process(chat_request)
        exchange = exchanges.current.get()
        seen.extend((exchange, exchanges.of(chat_request), chat_request))
        return fastapi.Response()

    created: Any = responses.responses(response_turns.followed(create))
    asyncio.run(created(SERVING, request))

    exchange, shared, chat_request = seen
    assert shared is exchange
    assert exchange.response is request
    assert isinstance(exchange.trace, responses.ResponseTrace)
    assert exchange.uses_memory is True
    assert (chat_request.extra_key, chat_request.cache_salt) == ("k", "s")
    assert exchanges.current.get() is None


def test_without_token_ids_and_memory_a_response_has_no_trace() -> None:
    async def create(self: Any, request: Any, raw_request: Any) -> Any:
        exchange = exchanges.current.get()
        assert exchange is not None
        assert (exchange.trace, exchange.turn) == (None, None)
        return "an error"

    created: Any = response_turns.followed(create)
    assert asyncio.run(created(SERVING, response_request())) == "an error"


def test_a_response_with_an_unusable_prefix_is_refused() -> None:
    async def create(self: Any, request: Any, raw_request: Any) -> Any:
        return process(ChatRequest())

    created: Any = response_turns.followed(create)
    request = response_request(required_prefix_token_ids=[1])
    refused = asyncio.run(created(SERVING, request))
    assert refused.startswith("required_prefix_token_ids ends with an assistant")
    with pytest.raises(prefix.PrefixError):
        process(ChatRequest(required_prefix_token_ids=[1]))


def test_reprocessing_a_prompt_clears_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(conversations, "memory", lambda: None)
    request = ChatRequest()
    exchanges.of(request).turn = prefix.Turn(None, None, 99)
    process(request)
    assert exchanges.of(request).turn is None
