"""Token IDs and logprobs on the events of /v1/responses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from agentcore_patches.landing import release
from agentcore_patches.landing.http import defaults, responses
from agentcore_patches.landing.http.responses import ResponseTrace
from tests.helpers.events import collected, data_of, event
from tests.unit.small_server import tokenizer_manager


@pytest.fixture(autouse=True)
def _traced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "RESPONSES_ARE_TRACED", True)


def result(*token_ids: int) -> Any:
    logprobs = [(-token_id / 10, token_id, None) for token_id in token_ids]
    return {
        "output_ids": list(token_ids),
        "prompt_token_ids": [5, 6],
        "meta_info": {"output_token_logprobs": logprobs},
    }


CREATED = event('{"type":"response.created","response":{"id":"r"}}')
COMPLETED = event('{"type":"response.completed","response":{"id":"r"}}')


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        ("completed", {"type": "length", "length": 1}, "incomplete"),
        ("completed", {"type": "stop", "matched": 2}, "completed"),
        ("failed", {"type": "length", "length": 1}, "completed"),
        ("completed", {"type": "abort", "message": "too long"}, "failed"),
    ],
)
def test_a_truncated_or_aborted_response_is_not_completed(
    status: str, reason: dict[str, Any], kind: str
) -> None:
    trace = ResponseTrace(incremental=False)
    made = result(1)
    made["meta_info"]["finish_reason"] = reason
    trace.push(0, made)
    text = f'{{"type":"response.completed","response":{{"status":"{status}"}}}}'
    line = trace.stamp(f"event: response.completed\ndata: {text}\n\n")
    assert line.startswith(f"event: response.{kind}\n")
    said = data_of(line)
    assert said["type"] == f"response.{kind}"
    added = {key: said["response"].get(key) for key in ("incomplete_details", "error")}
    assert added == {"incomplete_details": None, "error": None} | {
        "incomplete": {"incomplete_details": {"reason": "max_output_tokens"}},
        "failed": {"error": {"code": "server_error", "message": "too long"}},
    }.get(kind, {})
    assert trace.failed == (kind == "failed")


def test_a_refused_request_without_logprobs_keeps_its_reason() -> None:
    trace = ResponseTrace(incremental=False)
    reason = {"type": "abort", "message": "too long", "status_code": 400}
    trace.push(0, {"output_ids": [], "meta_info": {"finish_reason": reason}})
    assert trace.whole() == {"token_ids": [], "token_logprobs": []}


def test_sent_messages_lose_their_nulls_and_ids() -> None:
    part: dict[str, Any] = {"type": "output_text", "text": "a", "annotations": []}
    message: dict[str, Any] = {"type": "message", "role": "assistant"}
    others = [
        "text",
        {"role": "user", "content": None},
        {"type": "reasoning", "id": "r"},
    ]
    sent = {
        **message,
        "id": "m",
        "phase": None,
        "content": [{**part, "logprobs": None}],
    }
    taken = responses.take_back({"input": [sent, *others]})
    assert taken["input"] == [{**message, "content": [part]}, *others]
    for values in ("no request", {"input": "text"}, {}):
        assert responses.take_back(values) is values


class Serving(SimpleNamespace):
    """Stand-in for SGLang's handler of the endpoint."""

    def create_error_response(self, message: str, **more: Any) -> Any:
        return {"error": message, **more}

    @responses.results
    async def _generate(self, name: str, adapted_request: Any) -> AsyncIterator[Any]:
        for one in self.outputs:
            if isinstance(one, Exception):
                raise one
            yield SimpleNamespace(last_output=one)

    @responses.responses
    async def create(self, request: Any) -> Any:
        self.adapted = SimpleNamespace()
        generated = self._generate("x", adapted_request=self.adapted)

        async def stream() -> AsyncIterator[str]:
            yield CREATED
            try:
                async for _ in generated:
                    yield event('{"delta":"x"}')
            except ValueError as error:
                yield event(json.dumps({"type": "response.failed", "why": str(error)}))
                return
            yield COMPLETED

        if request.stream:
            return stream()
        async for _ in generated:
            pass
        return {"id": "r"}


def serving(*outputs: Any, **more: Any) -> Serving:
    manager = tokenizer_manager()
    values = {"use_harmony": False, "tokenizer_manager": manager, **more}
    return Serving(outputs=outputs, **values)


def request(flag: object, **more: Any) -> Any:
    return SimpleNamespace(
        **{"return_token_ids": flag, "stream": False, "background": False, **more}
    )


def test_a_non_streaming_response_has_its_trace() -> None:
    pytest.importorskip("fastapi")
    served = serving(result(1, 2))
    response = asyncio.run(served.create(request(True)))
    assert json.loads(response.body) == {
        "id": "r",
        "prompt_token_ids": [5, 6],
        "token_ids": [1, 2],
        "token_logprobs": [-0.1, -0.2],
    }
    assert served.adapted.return_logprob and served.adapted.return_prompt_token_ids


def test_a_stream_has_its_trace() -> None:
    served = serving(result(1), result(1, 2), result(1, 2, 3))
    lines = collected(asyncio.run(served.create(request(True, stream=True))))
    events = [*map(data_of, lines)]
    assert [one.get("token_ids") for one in events] == [[1], None, [2], [3], None]
    assert events[0]["response"]["prompt_token_ids"] == [5, 6]
    assert events[-1]["response"]["token_ids"] == [1, 2, 3]


def test_an_engine_error_reaches_the_reader_of_the_results() -> None:
    served = serving(ValueError("too long"))
    first, last = collected(asyncio.run(served.create(request(True, stream=True))))
    assert first == CREATED
    assert data_of(last) == {"type": "response.failed", "why": "too long"}


def test_a_request_that_cannot_be_traced_is_refused_unless_the_flag_is_a_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused = asyncio.run(serving(use_harmony=True).create(request(True)))
    assert "gpt-oss" in refused["error"]
    assert refused["param"] == "return_token_ids"
    monkeypatch.setattr(defaults, "values", lambda: {"return_token_ids": True})
    served = serving(result(1), use_harmony=True)
    assert asyncio.run(served.create(request(None))) == {"id": "r"}
