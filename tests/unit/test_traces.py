"""Property tests of streams: an engine delivers tokens, a server sends lines."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcore_patches.landing import release, streams, traces
from agentcore_patches.landing.traces import EndTrace, Trace
from tests.helpers.events import collected

PROMPT = [101, 102, 103]
DONE = "data: [DONE]\n\n"


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


def choice_of(index: int, content: str = "") -> dict[str, Any]:
    return {
        "index": index,
        "delta": {"content": content},
        "logprobs": None,
        "finish_reason": None,
        "matched_stop": None,
    }


def line_of(*indices: int, content: str = "a") -> str:
    """Return a line with some choices, as SGLang writes it."""
    chunk = {
        "id": "x",
        "choices": [choice_of(index, content) for index in indices],
        "model": "m",
        "usage": None,
    }
    return f"data: {json.dumps(chunk, separators=(',', ':'))}\n\n"


def read(line: str) -> dict[str, Any]:
    """Parse a line; fail if a key occurs twice."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(dict(pairs)) == len(pairs), line
        return dict(pairs)

    assert line.startswith("data: ") and line.endswith("\n\n")
    chunk: dict[str, Any] = json.loads(line[6:], object_pairs_hook=once)
    return chunk


def stamped(trace: Trace, *indices: int) -> dict[str, Any]:
    return read(trace.stamp(line_of(*indices)))


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
    n_choices=st.integers(1, 3),
)
def test_every_token_is_sent_once_with_its_logprobs(
    stream: list[tuple[str, Any]],
    incremental: bool,
    wants_logprobs: bool,
    n_choices: int,
) -> None:
    wanted_logprobs = write_logprobs if wants_logprobs else None
    trace = Trace(incremental, wanted_logprobs, n_choices=n_choices)
    engines = [Engine(index, incremental) for index in range(n_choices)]
    finish = [("stamp", (engine.index,)) for engine in engines]
    n_waiting = [0] * n_choices
    sent: list[list[int]] = [[] for _ in engines]

    for kind, what in [*stream, *finish]:
        if kind == "push":
            index, n_tokens, n_ahead = what
            index %= n_choices
            content = engines[index].delivers(n_tokens, n_ahead)
            delivered = content["output_ids"].copy()
            trace.push(index, content)
            assert content["output_ids"] == delivered
            n_waiting[index] += n_tokens
        else:
            indices = dict.fromkeys(index % n_choices for index in what)
            for choice in stamped(trace, *indices)["choices"]:
                token_ids = choice.pop("token_ids", None)
                assert len(token_ids or []) == n_waiting[choice["index"]]
                assert token_ids != []
                n_waiting[choice["index"]] = 0
                sent[choice["index"]] += token_ids or []
                wanted = logprobs(token_ids) if token_ids and wants_logprobs else None
                assert choice == {**choice_of(choice["index"], "a"), "logprobs": wanted}

    assert sent == [engine.token_ids for engine in engines]
    trace.end()


@given(stream=STREAMS, incremental=st.booleans())
def test_only_the_first_line_of_a_choice_with_output_has_the_prompt(
    stream: list[tuple[str, Any]], incremental: bool
) -> None:
    trace = Trace(incremental)
    engines = [Engine(index, incremental) for index in range(3)]
    spoken: set[int] = set()
    carried = []
    for kind, what in [*stream, ("push", (0, 1, 0)), ("stamp", (0,))]:
        if kind == "push":
            trace.push(what[0], engines[what[0]].delivers(*what[1:]))
            spoken.add(what[0])
        else:
            line = trace.stamp(line_of(*what))
            if spoken & {*what}:
                carried.append(read(line).get("prompt_token_ids"))
            else:
                assert line == line_of(*what)
    assert carried == [PROMPT, *[None] * (len(carried) - 1)]


@given(stream=STREAMS, n_tokens=st.integers(1, 4), n_missing=st.integers(1, 4))
def test_a_token_without_logprobs_is_named_in_the_error(
    stream: list[tuple[str, Any]], n_tokens: int, n_missing: int
) -> None:
    trace = Trace(False, write_logprobs)
    engine = Engine(0, False)
    for kind, what in stream:
        if kind == "push":
            trace.push(0, engine.delivers(what[1], 0))
        else:
            stamped(trace, 0)
    stamped(trace, 0)
    start = len(engine.token_ids)

    content = engine.delivers(n_tokens, 0)
    values = content["meta_info"]["output_token_logprobs"]
    del values[max(start, start + n_tokens - n_missing) :]
    trace.push(0, content)
    with pytest.raises(ValueError) as raised:
        trace.stamp(line_of(0))
    assert str(raised.value) == (
        f"The engine gave {len(values) - start} logprobs for the {n_tokens} tokens "
        f"{start} to {start + n_tokens - 1} of choice 0."
    )


def test_unrequested_top_logprobs_are_left_out() -> None:
    trace = Trace(True, write_logprobs)
    content = Engine(0, True).delivers(2, 0)
    content["meta_info"]["output_top_logprobs"] = None
    trace.push(0, content)
    [choice] = stamped(trace, 0)["choices"]
    assert choice["logprobs"] == {
        "output_token_logprobs": logprobs([0, 1])["output_token_logprobs"]
    }


def test_an_empty_prompt_is_sent_as_such() -> None:
    trace = Trace(True)
    trace.push(0, {"prompt_token_ids": [], "output_ids": [1], "meta_info": {}})
    assert stamped(trace, 0)["prompt_token_ids"] == []


def test_each_choice_gets_the_prompt_on_its_first_line_on_request() -> None:
    trace = Trace(True, prompt_on_chunk=False, prompt_on_choices=True)
    carried: list[tuple[int, Any]] = []
    for index in (1, 0, 1, 0):
        prompt = [100 + index]
        content = Engine(index, True).delivers(1, 0) | {"prompt_token_ids": prompt}
        trace.push(index, content)
        chunk = stamped(trace, index)
        assert "prompt_token_ids" not in chunk
        carried.append((index, chunk["choices"][0].get("prompt_token_ids")))
    assert carried == [(1, [101]), (0, [100]), (1, None), (0, None)]


def metadata(
    *generated: str | None, n_tokens: int = 1, first: dict[str, Any] | None = None
) -> list[Any]:
    """Return the metadata of each line of a stream whose tokens have these versions."""
    trace = Trace(True, n_choices=1)
    trace.metadata = first or {}
    engine = Engine(0, True)
    said = []
    for version in generated:
        engine.meta_info["weight_version"] = version
        trace.push(0, engine.delivers(n_tokens, 0))
        said.append(stamped(trace, 0).get("metadata"))
    return said


def weight_versions(*generated: str | None, n_tokens: int = 1) -> list[str | None]:
    said = metadata(*generated, n_tokens=n_tokens)
    return [of_line and of_line["weight_version"] for of_line in said]


def test_the_first_line_and_each_change_have_the_weight_version() -> None:
    assert weight_versions("a", "a", "a") == ["a", None, None]
    assert weight_versions("a", "b", "b") == ["a", "b", "b"]
    assert weight_versions("a", "b", "a", "a") == ["a", "b", "a", None]
    assert weight_versions("a", "a", "a", "b", "b", "a", "a") == (
        ["a", None, None, "b", "b", "a", None]
    )


def test_only_tokens_have_a_weight_version() -> None:
    assert weight_versions("a", "b", n_tokens=0) == ["a", None]
    assert metadata(None, None) == [None, None]
    assert metadata("a", None) == [{"weight_version": "a"}, None]


def test_the_first_line_has_the_other_metadata() -> None:
    prefix = {"prefix": {"matched": 3}}
    both = {"weight_version": "a", **prefix}
    assert metadata("a", "a", first=prefix) == [both, None]
    assert metadata(None, None, first=prefix) == [prefix, None]


@given(stream=STREAMS)
def test_incremental_logprobs_are_joined(
    stream: list[tuple[str, Any]],
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(release, "LOGPROBS_ARE_NEW", True)
        trace = Trace(True, write_logprobs)
    engines = [Engine(index, incremental=True) for index in range(3)]
    for kind, what in [*stream, *(("stamp", (index,)) for index in range(3))]:
        if kind == "push":
            index, n_tokens, _ = what
            engines[index].meta_info = {}
            content = engines[index].delivers(n_tokens, 0)
            new = content["output_ids"]
            content["meta_info"] = {
                "output_token_logprobs": [token_logprob(one) for one in new],
                "output_top_logprobs": [top_logprobs(one) for one in new],
            }
            trace.push(index, content)
        else:
            for choice in stamped(trace, *what)["choices"]:
                if "token_ids" in choice:
                    assert choice["logprobs"] == logprobs(choice["token_ids"])


# Lines


def pushed(*n_tokens: int, **options: Any) -> Trace:
    """Return a trace with pending tokens of choices 0, 1 and so on."""
    trace = Trace(True, **options)
    for index, count in enumerate(n_tokens):
        trace.push(index, Engine(index, True).delivers(count, 0))
    return trace


@pytest.mark.parametrize("n_choices", [1, None])
def test_lines_of_one_choice_are_stamped_without_parsing(
    n_choices: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Trace, "_stamp_parsed", None)
    trace, engine = Trace(True, n_choices=n_choices), Engine(0, True)
    for position in range(5):
        trace.push(0, engine.delivers(1, 0))
        [choice] = stamped(trace, 0)["choices"]
        assert choice["token_ids"] == [position]


@pytest.mark.parametrize(
    "content",
    [
        '"logprobs":null,"finish_reason":null',
        '","finish_reason":"stop"}]}',
        '"choices":[{"index":1,',
        "data: {}\n\n",
        "\\",
        "é\u2028🙂",
    ],
)
@pytest.mark.parametrize("n_choices", [1, None])
def test_text_that_looks_like_json_is_left_alone(
    content: str, n_choices: int | None
) -> None:
    trace, engine = Trace(True, n_choices=n_choices), Engine(0, True)
    for position in range(3):
        trace.push(0, engine.delivers(1, 0))
        chunk = read(trace.stamp(line_of(0, content=content)))
        chunk.pop("prompt_token_ids", None)
        assert chunk["choices"] == [
            {**choice_of(0, content), "token_ids": [position]},
        ]


@pytest.mark.parametrize("n_choices", [1, None])
def test_each_of_several_events_in_a_string_is_stamped(n_choices: int | None) -> None:
    trace, engine = Trace(True, n_choices=n_choices), Engine(0, True)
    for _ in range(3):
        trace.push(0, engine.delivers(1, 0))
        events = streams.events_of(line_of(0) + line_of())
        first, second = map(trace.stamp, map(str, events))
        assert len(read(first)["choices"][0]["token_ids"]) == 1
        assert second == line_of()


@pytest.mark.parametrize(
    "line",
    [
        f"data: {json.dumps(read(line_of(0)))}\n\n",
        line_of(0).replace('"logprobs":null,', ""),
    ],
    ids=["with spaces", "without logprobs"],
)
def test_a_line_with_another_json_layout_is_stamped(line: str) -> None:
    trace = pushed(2, write_logprobs=write_logprobs)
    chunk = read(trace.stamp(line))
    assert chunk["choices"][0]["token_ids"] == [0, 1]
    assert chunk["choices"][0]["logprobs"] == logprobs([0, 1])
    assert chunk["prompt_token_ids"] == PROMPT


def test_lines_that_are_not_chunks_pass_unchanged() -> None:
    trace = pushed(1)
    for line in (": ping\n\n", "data: 5\n\n", "data: {\n\n", 'data: {"a":1}\n\n'):
        assert trace.stamp(line) == line
    assert stamped(trace, 0)["choices"][0]["token_ids"] == [0]


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


def serving(incremental: bool = True) -> Any:
    manager = SimpleNamespace(server_args=SimpleNamespace(stream_output=incremental))
    return SimpleNamespace(
        tokenizer_manager=manager,
        create_streaming_error_response=lambda message: json.dumps({"error": message}),
    )


@dataclass
class Asked:
    """A request with the attributes that the wrappers read."""

    return_token_ids: bool | None = None
    return_routed_experts: bool = False
    logprobs: Any = None
    n: int = 1

    def model_copy(self, update: dict[str, Any]) -> Asked:
        return Asked(**{**self.__dict__, **update})


Lines = Callable[..., AsyncIterator[str]]


def three_chunks(closed: list[bool] | None = None) -> Lines:
    """A generator of SGLang, to which a fork has added a parameter."""

    async def generate(
        self: Any,
        adapted: Any,
        request: Asked,
        raw: Any,
        fork: int = 0,
        trace: Any = None,
    ) -> AsyncIterator[str]:
        engine = Engine(0, True)
        try:
            for _ in range(3):
                content = engine.delivers(1, 0)
                if trace is not None:
                    trace.push(0, content)
                yield line_of(0, content=f"fork {fork}")
            yield DONE
        finally:
            if closed is not None:
                closed.append(True)

    return generate


def test_extra_arguments_of_a_fork_reach_its_generator() -> None:
    stream = traces.chat(three_chunks())
    for lines in (
        stream(serving(), None, Asked(), None, 7),
        stream(serving(), None, Asked(), None, fork=7),
        stream(serving(), adapted_request=None, request=Asked(), raw=None, fork=7),
    ):
        *chunks, done = collected(lines)
        assert done == DONE
        assert [read(line)["choices"][0]["token_ids"] for line in chunks] == (
            [[0], [1], [2]]
        )
        assert all("fork 7" in line for line in chunks)


@pytest.mark.parametrize("wrapper", [traces.chat, traces.completions])
def test_a_stream_that_is_closed_early_leaves_nothing_open(wrapper: Any) -> None:
    closed: list[bool] = []
    lines = wrapper(three_chunks(closed))(serving(), None, Asked(True), None)

    async def close_early() -> None:
        await anext(lines)
        await lines.aclose()
        assert closed == [True]

    asyncio.run(close_early())


def test_only_a_request_for_token_ids_needs_an_engine_that_delivers_them() -> None:
    async def generate(*args: Any, trace: Any) -> AsyncIterator[str]:
        trace.push(0, {"text": "a", "meta_info": {}})
        yield line_of(0)

    stream = traces.chat(generate)
    assert collected(stream(serving(), None, Asked(), None)) == [line_of(0)]
    error, done = collected(stream(serving(), None, Asked(True), None))
    assert "output_ids" in read(error)["error"]
    assert done == DONE

    whole: Any = traces.get_token_ids
    assert whole(Asked(), {"output_ids": [1]}) == [1]
    assert whole(Asked(), {}) is whole(Asked(False), {"output_ids": [1]}) is None
    with pytest.raises(KeyError, match="output_ids"):
        whole(Asked(True), {})


async def without_a_place(
    self: Any, adapted: Any, request: Asked, raw: Any, trace: Any
) -> AsyncIterator[str]:
    trace.push(0, Engine(0, True).delivers(1, 0))
    yield line_of(0)
    trace.push(0, Engine(0, True).delivers(1, 0))
    yield line_of()


@pytest.mark.parametrize("first_line_before_status", [False, True])
def test_token_ids_without_a_line_to_carry_them_are_an_error(
    first_line_before_status: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release, "FIRST_LINE_BEFORE_STATUS", first_line_before_status)
    lines = collected(traces.chat(without_a_place)(serving(), None, Asked(), None))
    *_, error, done = lines
    assert "all token IDs of choice 0 were sent" in read(error)["error"]
    assert done == DONE


@pytest.mark.parametrize("made_before_status", [False, True])
def test_an_error_before_the_first_line_is_raised_where_it_can_be_a_400(
    made_before_status: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*args: Any, trace: Any) -> AsyncIterator[str]:
        trace.write_logprobs = write_logprobs
        trace.push(0, {"output_ids": [1], "meta_info": {}})
        yield line_of(0)

    monkeypatch.setattr(release, "FIRST_LINE_BEFORE_STATUS", made_before_status)
    lines = traces.chat(fails)(serving(), None, Asked(), None)
    if made_before_status:
        with pytest.raises(ValueError, match="gave 0 logprobs"):
            collected(lines)
    else:
        error, done = collected(lines)
        assert "gave 0 logprobs" in read(error)["error"]
        assert done == DONE


SPANS = [{"version": "a", "start": 0, "end": 2}]


def versions(meta_info: dict[str, Any]) -> dict[str, Any]:
    return {"weight_versions": meta_info["weight_versions"]}


def finished(trace: Trace, *, parsed: bool = False) -> list[Any]:
    """Return the versions on a stream's lines; the last line finishes the choice."""
    engine = Engine(0, True)
    said = []
    for finish in ("null", "null", '"stop"'):
        if finish != "null":
            engine.meta_info["weight_versions"] = SPANS
        trace.push(0, engine.delivers(1, 0))
        line = line_of(0).replace('"finish_reason":null', f'"finish_reason":{finish}')
        if parsed:
            # SGLang does not write this order, so the line is parsed.
            chunk = json.loads(line.removeprefix("data: "))
            line = f"data: {json.dumps(chunk)}\n\n"
        [choice] = json.loads(trace.stamp(line).removeprefix("data: "))["choices"]
        said.append(choice.get("weight_versions"))
    return said


@pytest.mark.parametrize("parsed", [False, True])
def test_the_last_line_has_the_weight_versions_of_its_choice(
    parsed: bool,
) -> None:
    asked = Trace(True, n_choices=1, at_end=[versions])
    assert finished(asked, parsed=parsed) == [None, None, SPANS]
    unasked = Trace(True, n_choices=1)
    assert finished(unasked, parsed=parsed) == [None, None, None]


def test_a_stream_can_carry_end_fields_only() -> None:
    trace = EndTrace(True, at_end=[versions])
    assert finished(trace) == [None, None, SPANS]
    engine = Engine(0, True, meta_info={"weight_versions": SPANS})
    trace.push(0, engine.delivers(1, 0))
    assert trace.stamp(line_of(0)) == line_of(0)
    last = line_of(0).replace('"finish_reason":null', '"finish_reason":"stop"')
    [choice] = read(trace.stamp(last))["choices"]
    said = {"finish_reason": "stop", "weight_versions": SPANS}
    assert choice == {**choice_of(0, "a"), **said}
    assert trace.stamp(DONE) == DONE
    trace.end()


def test_experts_and_versions_can_be_combined() -> None:
    experts = {"routed_experts": "AA+/", "routed_experts_start_len": 3}
    trace = Trace(True, n_choices=1, at_end=[versions, lambda _: experts])
    engine = Engine(0, True)
    engine.meta_info["weight_versions"] = SPANS
    trace.push(0, engine.delivers(1, 0))
    line = line_of(0).replace('"finish_reason":null', '"finish_reason":"stop"')
    [choice] = read(trace.stamp(line))["choices"]
    assert choice["token_ids"] == [0]
    assert choice["finish_reason"] == "stop"
    assert {**experts, "weight_versions": SPANS}.items() <= choice.items()


@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.parametrize("add", [traces.add_to_chat_choice, traces.add_to_completion])
def test_a_non_streaming_choice_has_the_fields_of_a_last_chunk(
    add: Any, asked: bool
) -> None:
    request: Any = SimpleNamespace(
        return_token_ids=None,
        return_weight_versions=asked,
        return_routed_experts=asked,
        routed_experts_format=None,
        routed_experts_start_len=3,
    )
    meta_info = {"weight_versions": SPANS, "routed_experts": "AA+/"}
    serving: Any = None
    choice = SimpleNamespace()
    add(serving, choice, request, {"meta_info": meta_info})

    trace = EndTrace(True, at_end=traces._at_end(serving, request))
    engine = Engine(0, True, meta_info=meta_info)
    trace.push(0, engine.delivers(1, 0))
    line = line_of(0).replace('"finish_reason":null', '"finish_reason":"stop"')
    [last] = read(trace.stamp(line))["choices"]
    assert {**choice_of(0, "a"), "finish_reason": "stop", **vars(choice)} == last
    assert set(vars(choice)) == (
        {"weight_versions", "routed_experts", "routed_experts_start_len"}
        if asked
        else set()
    )


def test_a_line_without_choices_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orjson.loads", None)
    line = 'data: {"id":"1","choices":[],"sglext":{"routed_experts":"AAAA"}}\n\n'
    assert Trace(True).stamp(line) == line
