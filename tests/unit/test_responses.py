"""Token IDs and logprobs on the events of /v1/responses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from agentcore_patches.landing import defaults, release, responses
from agentcore_patches.landing.responses import ResponseTrace, Results
from tests.helpers.events import collected, data_of, event


@pytest.fixture(autouse=True)
def _traced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "RESPONSES_ARE_TRACED", True)


def result(*token_ids: int, n_logprobs: int | None = None, **more: Any) -> Any:
    logprobs = [(-token_id / 10, token_id, None) for token_id in token_ids]
    return {
        "output_ids": list(token_ids),
        "prompt_token_ids": [5, 6],
        "meta_info": {"output_token_logprobs": logprobs[:n_logprobs]},
        **more,
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
    cut = said["response"].get("incomplete_details")
    assert cut == ({"reason": "max_output_tokens"} if kind == "incomplete" else None)
    error = said["response"].get("error")
    assert error == (
        {"code": "server_error", "message": "too long"} if kind == "failed" else None
    )
    assert trace.failed == (kind == "failed")


def test_sent_messages_lose_their_nulls_and_ids() -> None:
    part: dict[str, Any] = {
        "type": "output_text",
        "text": "a",
        "annotations": [],
        "logprobs": None,
    }
    message = {"type": "message", "role": "assistant", "id": "m", "phase": None}
    others = [
        "text",
        {"role": "user", "content": None},
        {"type": "reasoning", "id": "r"},
    ]
    taken = responses.take_back({"input": [{**message, "content": [part]}, *others]})
    content = [{"type": "output_text", "text": "a", "annotations": []}]
    kept = {"type": "message", "role": "assistant", "content": content}
    assert taken["input"] == [kept, *others]
    for values in ("no request", {"input": "text"}, {}):
        assert responses.take_back(values) is values


def test_the_first_event_has_the_prompt_and_the_last_has_everything() -> None:
    trace = ResponseTrace(incremental=False)
    trace.push(0, result(1))
    assert data_of(trace.stamp(CREATED)) == {
        "type": "response.created",
        "response": {"id": "r", "prompt_token_ids": [5, 6]},
        "token_ids": [1],
        "token_logprobs": [-0.1],
    }
    in_progress = event('{"type":"response.in_progress","response":{"id":"r"}}')
    assert data_of(trace.stamp(in_progress)) == data_of(in_progress)
    trace.push(0, result(1, 2, 3))
    assert data_of(trace.stamp(COMPLETED)) == {
        "type": "response.completed",
        "response": {
            "id": "r",
            "prompt_token_ids": [5, 6],
            "token_ids": [1, 2, 3],
            "token_logprobs": [-0.1, -0.2, -0.3],
        },
        "token_ids": [2, 3],
        "token_logprobs": [-0.2, -0.3],
    }
    trace.end()


@pytest.mark.parametrize("logprobs_are_new", [False, True])
def test_incremental_results_are_joined(
    monkeypatch: pytest.MonkeyPatch, logprobs_are_new: bool
) -> None:
    monkeypatch.setattr(release, "LOGPROBS_ARE_NEW", logprobs_are_new)
    trace = ResponseTrace(incremental=True)
    first, second = result(1, 2), result(3)
    if not logprobs_are_new:
        second["meta_info"] = result(1, 2, 3)["meta_info"]
    trace.push(0, first)
    stamped = trace.stamp(event('{"delta":"é"}'))
    assert stamped == event(
        '{"delta":"é","token_ids":[1,2],"token_logprobs":[-0.1,-0.2]}'
    )
    trace.push(0, second)
    assert data_of(trace.stamp(COMPLETED))["response"]["token_ids"] == [1, 2, 3]


@pytest.mark.parametrize("kind", [str, str.encode])
def test_each_of_several_events_in_a_string_is_stamped(kind: Any) -> None:
    trace = ResponseTrace(incremental=False)
    trace.push(0, result(1))
    both = kind(event('{"delta":"}\\n"}') + event('{"delta":""}'))
    one, other = streamed(trace, both)
    assert data_of(one)["token_ids"] == [1] and data_of(one)["delta"] == "}\n"
    assert "token_ids" not in data_of(other)


@pytest.mark.parametrize("line", [": ping\n\n", event('{"delta":"x"}'), CREATED])
def test_a_line_with_nothing_to_carry_is_unchanged(line: str) -> None:
    stamped = ResponseTrace(incremental=False).stamp(line)
    assert stamped == line


def test_text_that_looks_like_a_response_is_text() -> None:
    trace = ResponseTrace(incremental=False)
    trace.push(0, result(1))
    delta = json.dumps({"type": "x", "delta": '{"response":{}}'})
    assert data_of(trace.stamp(event(delta)))["token_ids"] == [1]


def test_an_unknown_prompt_is_left_out() -> None:
    trace = ResponseTrace(incremental=False)
    trace.push(0, result(1, prompt_token_ids=None))
    assert "prompt_token_ids" not in data_of(trace.stamp(CREATED))["response"]
    assert trace.whole().keys() == {"token_ids", "token_logprobs"}


def lines(*events: Any) -> AsyncGenerator[Any, None]:
    async def stream() -> AsyncGenerator[Any, None]:
        for one in events:
            yield one

    return stream()


def streamed(trace: ResponseTrace, *events: Any) -> list[str]:
    return collected(responses._stamped(trace, lines(*events)))


def test_fewer_logprobs_than_tokens_are_an_error_event() -> None:
    trace = ResponseTrace(incremental=False)
    trace.push(0, result(1, 2, n_logprobs=1))
    [error] = streamed(trace, CREATED, COMPLETED)
    assert error.startswith("event: error\n")
    assert "1 logprobs for the 2 tokens" in data_of(error)["message"]


def test_token_ids_without_an_event_to_carry_them_are_an_error() -> None:
    trace = ResponseTrace(incremental=False)
    trace.push(0, result(1))
    *_, error = streamed(trace, ": ping\n\n")
    assert "before all token IDs" in data_of(error)["message"]


class Serving(SimpleNamespace):
    """Stand-in for SGLang's handler of the endpoint."""

    def create_error_response(self, message: str, **more: Any) -> Any:
        return {"error": message, **more}

    def _contexts(self, *results: Any) -> AsyncIterator[Any]:
        async def generate() -> AsyncIterator[Any]:
            for one in results:
                if isinstance(one, Exception):
                    raise one
                yield SimpleNamespace(last_output=one)

        return generate()

    @responses.results
    def _generate(self, name: str, adapted_request: Any) -> AsyncIterator[Any]:
        return self._contexts(*self.outputs)

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
    arguments = SimpleNamespace(
        stream_output=False, speculative_algorithm=None, dllm_algorithm=None
    )
    manager = SimpleNamespace(server_args=arguments)
    return Serving(
        **{
            "outputs": outputs,
            "use_harmony": False,
            "tokenizer_manager": manager,
            **more,
        }
    )


def request(flag: object, **more: Any) -> Any:
    return SimpleNamespace(
        **{"return_token_ids": flag, "stream": False, "background": False, **more}
    )


def streamed_by(served: Serving) -> list[Any]:
    """Return the events of a stream with a trace."""
    response = asyncio.run(served.create(request(True, stream=True)))
    return [data_of(line) for line in collected(response)]


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
    events = streamed_by(serving(result(1), result(1, 2), result(1, 2, 3)))
    assert [one.get("token_ids") for one in events] == [[1], None, [2], [3], None]
    assert events[0]["response"]["prompt_token_ids"] == [5, 6]
    assert events[-1]["response"]["token_ids"] == [1, 2, 3]


def test_an_engine_error_reaches_the_reader_of_the_results() -> None:
    first, last = streamed_by(serving(ValueError("too long")))
    assert first == data_of(CREATED)
    assert last == {"type": "response.failed", "why": "too long"}


@pytest.mark.parametrize("flag", [None, False])
def test_without_the_flag_the_response_is_sglangs(flag: object) -> None:
    served = serving(result(1))
    assert asyncio.run(served.create(request(flag))) == {"id": "r"}
    assert vars(served.adapted) == {}


UNTRACED = [
    ({"use_harmony": True}, {}, "gpt-oss"),
    ({}, {"background": True}, "background=false"),
]


@pytest.mark.parametrize(("server", "asked", "why"), UNTRACED)
def test_requests_that_cannot_be_traced_are_refused(
    server: Any, asked: Any, why: str
) -> None:
    refused = asyncio.run(serving(**server).create(request(True, **asked)))
    assert why in refused["error"]
    assert refused["param"] == "return_token_ids"


def test_requests_for_token_ids_are_refused_before_0_5_14(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(release, "RESPONSES_ARE_TRACED", False)
    refused = asyncio.run(serving().create(request(True)))
    assert "0.5.14 is the first" in refused["error"]


@pytest.mark.parametrize(("server", "asked", "why"), UNTRACED)
def test_defaults_skip_requests_that_cannot_be_traced(
    monkeypatch: pytest.MonkeyPatch, server: Any, asked: Any, why: str
) -> None:
    pytest.importorskip("fastapi")
    monkeypatch.setattr(defaults, "values", lambda: {"return_token_ids": True})
    served = serving(result(1), **server)
    assert asyncio.run(served.create(request(None, **asked))) == {"id": "r"}
    whole = asyncio.run(serving(result(1)).create(request(None)))
    assert json.loads(whole.body)["token_ids"] == [1]


def test_results_are_read_once_whether_or_not_the_first_was_awaited() -> None:
    async def read(early: bool) -> list[int]:
        trace = ResponseTrace(incremental=False)
        results = Results(trace, serving()._contexts(result(1), result(1, 2)))
        if early:
            await results.wait_for_first()
        return [len(context.last_output["output_ids"]) async for context in results]

    assert asyncio.run(read(False)) == asyncio.run(read(True)) == [1, 2]
