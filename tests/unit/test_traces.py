"""Property tests of streams: an engine delivers tokens, a server sends lines."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcore_patches.landing import release
from agentcore_patches.landing.http import exchanges, traces
from agentcore_patches.landing.http.traces import Trace
from tests.helpers.events import collected
from tests.unit.small_server import DONE, Model, chat_endpoint, choice_of, line_of

PROMPT = [101, 102, 103]


@dataclass
class Engine:
    """Output of one choice; its lists of logprobs are live and run ahead."""

    index: int
    incremental: bool
    token_ids: list[int] = field(default_factory=list)
    meta_info: dict[str, Any] = field(default_factory=dict)

    def delivers(self, n_tokens: int, n_ahead: int) -> dict[str, Any]:
        """Return the answer after `n_tokens` more; logprobs are `n_ahead` ahead."""
        start, end = len(self.token_ids), len(self.token_ids) + n_tokens
        new = [1000 * self.index + position for position in range(start, end)]
        self.token_ids += new
        for key, entry in (
            ("output_token_logprobs", token_logprob),
            ("output_top_logprobs", top_logprobs),
        ):
            values = self.meta_info.setdefault(key, [])
            wanted = range(len(values), end + n_ahead)
            values += [entry(1000 * self.index + position) for position in wanted]
        return {
            "index": self.index,
            "prompt_token_ids": PROMPT,
            "output_ids": new if self.incremental else self.token_ids.copy(),
            "meta_info": dict(self.meta_info),
        }


def token_logprob(token_id: int) -> tuple[float, int, str]:
    return -token_id / 7, token_id, f"<{token_id}>"


def top_logprobs(token_id: int) -> list[tuple[float, int, str]]:
    return [token_logprob(token_id), token_logprob(token_id + 500)]


def logprobs(token_ids: list[int]) -> dict[str, Any]:
    """Return the parsed logprobs that `write_logprobs` must write for these tokens."""
    made = {
        "output_token_logprobs": [token_logprob(token_id) for token_id in token_ids],
        "output_top_logprobs": [top_logprobs(token_id) for token_id in token_ids],
    }
    parsed: dict[str, Any] = json.loads(json.dumps(made))
    return parsed


def write_logprobs(meta_info: dict[str, Any]) -> str:
    return json.dumps(meta_info)


def read(line: str) -> dict[str, Any]:
    """Parse a line; fail if a key occurs twice."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(dict(pairs)) == len(pairs), line
        return dict(pairs)

    assert line.startswith("data: ") and line.endswith("\n\n")
    chunk: dict[str, Any] = json.loads(line[6:], object_pairs_hook=once)
    return chunk


def stamped(trace: Trace, *indices: int, content: str = "a") -> dict[str, Any]:
    return read(trace.stamp(line_of(*(choice_of(index, content) for index in indices))))


CONTENTS = [
    "a",
    '"logprobs":null,"finish_reason":null',
    '","finish_reason":"stop"}]}',
    '"choices":[{"index":1,',
    "\\",
    "é\u2028🙂",
]
"""Texts, most of which look like the JSON of a line."""


INDEX = st.integers(0, 2)
PUSH = st.tuples(INDEX, st.integers(0, 4), st.integers(0, 3))
STAMP = st.one_of(st.tuples(INDEX), st.just(()), st.just((1, 0)))
# Steps, in order: `push` of a choice, its number of new tokens, and how far its
# logprobs run ahead; `stamp` of a line, mostly of one choice (a usage line has none).
STREAMS = st.lists(
    st.one_of(
        st.tuples(st.just("push"), PUSH),
        st.tuples(st.just("stamp"), STAMP),
    ),
    max_size=40,
)


@given(
    stream=STREAMS,
    incremental=st.booleans(),
    wants_logprobs=st.booleans(),
    is_flat=st.booleans(),
    logprobs_are_new=st.booleans(),
    n_choices=st.integers(1, 3),
    content=st.sampled_from(CONTENTS),
)
def test_every_token_is_sent_once_with_its_logprobs(
    stream: list[tuple[str, Any]],
    incremental: bool,
    wants_logprobs: bool,
    is_flat: bool,
    logprobs_are_new: bool,
    n_choices: int,
    content: str,
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(release, "LOGPROBS_ARE_NEW", logprobs_are_new)
        wanted = write_logprobs if wants_logprobs else None
        trace = Trace(incremental, wanted, is_flat, n_choices=n_choices)
        send(stream, trace, n_choices, content)


def send(
    stream: list[tuple[str, Any]], trace: Trace, n_choices: int, text: str
) -> None:
    """Send a stream, and check that each token is sent once with its logprobs."""
    engines = [Engine(index, trace.incremental) for index in range(n_choices)]
    finish = [("stamp", (engine.index,)) for engine in engines]
    n_waiting = [0] * n_choices
    sent: list[list[int]] = [[] for _ in engines]

    for kind, what in [*stream, *finish]:
        if kind == "push":
            index, n_tokens, n_ahead = what
            index %= n_choices
            if trace.incremental and release.LOGPROBS_ARE_NEW:
                content = engines[index].delivers(n_tokens, 0)
                content["meta_info"] = {
                    key: values[len(values) - n_tokens :]
                    for key, values in content["meta_info"].items()
                }
            else:
                content = engines[index].delivers(n_tokens, n_ahead)
            delivered = content["output_ids"].copy()
            trace.push(index, content)
            assert content["output_ids"] == delivered
            n_waiting[index] += n_tokens
        else:
            indices = dict.fromkeys(index % n_choices for index in what)
            for choice in stamped(trace, *indices, content=text)["choices"]:
                token_ids = choice.pop("token_ids", None)
                assert len(token_ids or []) == n_waiting[choice["index"]]
                assert token_ids != []
                n_waiting[choice["index"]] = 0
                sent[choice["index"]] += token_ids or []
                has_entries = token_ids and trace.write_logprobs is not None
                wanted = logprobs(token_ids) if has_entries else None
                if trace.is_flat and token_ids:
                    flat = [token_logprob(one)[0] for one in token_ids]
                    assert choice.pop("token_logprobs") == flat
                expected = choice_of(choice["index"], text)
                assert choice == {**expected, "logprobs": wanted}

    assert sent == [engine.token_ids for engine in engines]
    trace.end()


@pytest.mark.parametrize(
    ("generated", "said"),
    [
        ("abb", ["a", "b", "b"]),
        ("aaabbaa", ["a", None, None, "b", "b", "a", None]),
    ],
)
def test_the_first_line_and_each_change_have_the_weight_version(
    generated: str, said: list[str | None]
) -> None:
    trace, engine = Trace(True, n_choices=1), Engine(0, True)
    found = []
    for version in generated:
        engine.meta_info["weight_version"] = version
        trace.push(0, engine.delivers(1, 0))
        of_line = stamped(trace, 0).get("metadata")
        found.append(of_line and of_line["weight_version"])
    assert found == said


# Lines


def pushed(*n_tokens: int, **options: Any) -> Trace:
    """Return a trace with pending tokens of choices 0, 1 and so on."""
    trace = Trace(True, **options)
    for index, count in enumerate(n_tokens):
        trace.push(index, Engine(index, True).delivers(count, 0))
    return trace


def test_a_stream_cannot_end_while_token_ids_are_pending() -> None:
    for last in ("", DONE):
        trace = pushed(1, 2)
        stamped(trace, 0)
        trace.stamp(": ping\n\n")
        with pytest.raises(ValueError, match="all token IDs of choice 1 were sent"):
            trace.stamp(last) if last else trace.end()
        stamped(trace, 1)
        trace.end()
        assert trace.stamp(DONE) == DONE


def test_a_stream_may_end_with_pending_tokens_after_an_error_event() -> None:
    trace = pushed(1)
    trace.stamp('data: {"error":{"message":"out of memory"}}\n\n')
    trace.stamp(": ping\n\n")
    assert trace.stamp(DONE) == DONE


# Generators


def request(return_token_ids: bool | None = None) -> Any:
    flags = dict.fromkeys(("return_routed_experts", "return_token_logprobs"))
    exchange = exchanges.Exchange()
    return Model(
        return_token_ids=return_token_ids,
        **flags,
        logprobs=None,
        n=1,
        _exchange=exchange,
    )


def test_extra_arguments_of_a_fork_reach_its_generator() -> None:
    async def generate(
        self: Any, adapted: Any, request: Any, raw: Any, fork: int = 0
    ) -> AsyncIterator[str]:
        engine = Engine(0, True)
        for _ in range(3):
            request._exchange.trace.push(0, engine.delivers(1, 0))
            yield line_of(choice_of(0, f"fork {fork}"))
        yield DONE

    endpoint = chat_endpoint(stream_output=True)
    lines = traces.chat(generate)(endpoint, None, request(), None, fork=7)
    *chunks, done = collected(lines)
    assert done == DONE
    token_ids = [read(line)["choices"][0]["token_ids"] for line in chunks]
    assert token_ids == [[0], [1], [2]]
    assert all("fork 7" in line for line in chunks)


def test_only_a_request_for_token_ids_needs_an_engine_that_delivers_them() -> None:
    async def generate(self: Any, adapted: Any, request: Any) -> AsyncIterator[str]:
        request._exchange.trace.push(0, {"text": "a", "meta_info": {}})
        yield line_of(choice_of(0))

    stream, endpoint = traces.chat(generate), chat_endpoint(stream_output=True)
    assert collected(stream(endpoint, None, request())) == [line_of(choice_of(0))]
    error, done = collected(stream(endpoint, None, request(True)))
    assert "output_ids" in read(error)["error"]
    assert done == DONE


def test_a_line_without_choices_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orjson.loads", None)
    line = 'data: {"id":"1","choices":[],"sglext":{"routed_experts":"AAAA"}}\n\n'
    assert Trace(True).stamp(line) == line
