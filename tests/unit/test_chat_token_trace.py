"""A chat stream by properties: an engine that delivers, a server that sends chunks."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcore_patches.grafts.chat_token_trace import ChatTokenTrace

PROMPT = [101, 102, 103]


@dataclass
class Engine:
    """What one choice has generated; its lists of logprobs are live and run ahead."""

    index: int
    incremental: bool
    token_ids: list[int] = field(default_factory=list)
    meta_info: dict[str, Any] = field(default_factory=dict)

    def delivers(self, n_tokens: int, n_ahead: int) -> dict[str, Any]:
        """The engine's answer after `n_tokens` more, logprobs of `n_ahead` beyond."""
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
    """What `build_logprobs` makes of the right slices for these tokens."""
    return {
        "output_token_logprobs": [token_logprob(token_id) for token_id in token_ids],
        "output_top_logprobs": [top_logprobs(token_id) for token_id in token_ids],
    }


def build_logprobs(answer: dict[str, Any]) -> dict[str, Any]:
    return {key: list(values) for key, values in answer["meta_info"].items()}


def chunk_for(*indices: int) -> SimpleNamespace:
    choices = [
        SimpleNamespace(index=index, token_ids=None, logprobs=None) for index in indices
    ]
    return SimpleNamespace(choices=choices, prompt_token_ids=None)


INDEX = st.integers(0, 2)
PUSH = st.tuples(INDEX, st.integers(0, 4), st.integers(0, 3))
STAMP = st.one_of(st.tuples(INDEX), st.just(()), st.just((1, 0)))
# What happens, in order: `push` of a choice, how many tokens it has more, and how far its
# logprobs run ahead; `stamp` of a chunk, mostly of one choice (that of usage has none).
STREAMS = st.lists(
    st.one_of(
        st.tuples(st.just("push"), PUSH),
        st.tuples(st.just("stamp"), STAMP),
    ),
    max_size=40,
)


@given(stream=STREAMS, incremental=st.booleans(), wants_logprobs=st.booleans())
def test_every_token_leaves_once_on_the_next_chunk_of_its_choice_with_its_logprobs(
    stream: list[tuple[str, Any]], incremental: bool, wants_logprobs: bool
) -> None:
    trace = ChatTokenTrace(incremental, build_logprobs if wants_logprobs else None)
    engines = [Engine(index, incremental) for index in range(3)]
    finish = [("stamp", (engine.index,)) for engine in engines]
    n_waiting = [0, 0, 0]
    sent: list[list[int]] = [[], [], []]
    stamped: list[tuple[SimpleNamespace, list[int]]] = []

    for kind, what in [*stream, *finish]:
        if kind == "push":
            index, n_tokens, n_ahead = what
            content = engines[index].delivers(n_tokens, n_ahead)
            delivered = content["output_ids"].copy()
            trace.push(index, content)
            assert content["output_ids"] == delivered
            n_waiting[index] += n_tokens
        else:
            chunk = chunk_for(*what)
            trace.stamp(chunk)
            for choice in chunk.choices:
                token_ids = choice.token_ids or []
                assert len(token_ids) == n_waiting[choice.index]
                n_waiting[choice.index] = 0
                sent[choice.index] += token_ids
                stamped.append((choice, token_ids.copy()))

    assert sent == [engine.token_ids for engine in engines]
    for choice, token_ids in stamped:
        # Looked at last: nothing that came later has changed a chunk that was sent.
        assert choice.token_ids == (token_ids or None)
        wanted = logprobs(token_ids) if token_ids and wants_logprobs else None
        assert choice.logprobs == wanted


@given(stream=STREAMS, incremental=st.booleans())
def test_the_prompt_is_on_the_first_chunk_after_the_engine_spoke_and_on_no_other(
    stream: list[tuple[str, Any]], incremental: bool
) -> None:
    trace = ChatTokenTrace(incremental)
    engines = [Engine(index, incremental) for index in range(3)]
    spoken = False
    carried = []
    for kind, what in [*stream, ("push", (0, 1, 0)), ("stamp", (0,))]:
        if kind == "push":
            trace.push(what[0], engines[what[0]].delivers(*what[1:]))
            spoken = True
        else:
            chunk = chunk_for(*what)
            trace.stamp(chunk)
            if spoken:
                carried.append(chunk.prompt_token_ids)
            else:
                assert chunk == chunk_for(*what)
    assert carried == [PROMPT, *[None] * (len(carried) - 1)]


@given(stream=STREAMS, n_tokens=st.integers(1, 4), n_missing=st.integers(1, 4))
def test_a_token_without_logprobs_is_an_error_that_says_which(
    stream: list[tuple[str, Any]], n_tokens: int, n_missing: int
) -> None:
    trace = ChatTokenTrace(False, build_logprobs)
    engine = Engine(0, False)
    for kind, what in stream:
        if kind == "push":
            trace.push(0, engine.delivers(what[1], 0))
        else:
            trace.stamp(chunk_for(0))
    trace.stamp(chunk_for(0))
    start = len(engine.token_ids)

    content = engine.delivers(n_tokens, 0)
    values = content["meta_info"]["output_token_logprobs"]
    del values[max(start, start + n_tokens - n_missing) :]
    trace.push(0, content)
    with pytest.raises(ValueError) as raised:
        trace.stamp(chunk_for(0))
    assert str(raised.value) == (
        f"The engine gave {len(values) - start} logprobs for the {n_tokens} tokens "
        f"{start} to {start + n_tokens - 1} of choice 0."
    )


def test_an_answer_without_any_logprobs_is_an_error_when_they_are_asked_for() -> None:
    trace = ChatTokenTrace(True, build_logprobs)
    trace.push(
        0, {"prompt_token_ids": PROMPT, "output_ids": [1], "meta_info": {"id": "x"}}
    )
    with pytest.raises(ValueError, match=r"gave 0 logprobs for the 1 tokens 0 to 0"):
        trace.stamp(chunk_for(0))


def test_top_logprobs_that_nobody_asked_for_are_left_out() -> None:
    trace = ChatTokenTrace(True, build_logprobs)
    content = Engine(0, True).delivers(2, 0)
    content["meta_info"]["output_top_logprobs"] = None
    trace.push(0, content)
    chunk = chunk_for(0)
    trace.stamp(chunk)
    assert chunk.choices[0].logprobs == {
        "output_token_logprobs": [token_logprob(0), token_logprob(1)]
    }


def test_an_empty_prompt_is_sent_as_such() -> None:
    trace = ChatTokenTrace(True)
    trace.push(0, {"prompt_token_ids": [], "output_ids": [1], "meta_info": {}})
    chunk = chunk_for(0)
    trace.stamp(chunk)
    assert chunk.prompt_token_ids == []


def test_an_abort_that_repeats_all_sends_nothing_again() -> None:
    trace = ChatTokenTrace(False, build_logprobs)
    engine = Engine(0, False)
    trace.push(0, engine.delivers(3, 0))
    trace.stamp(chunk_for(0))
    trace.push(0, engine.delivers(0, 0))
    chunk = chunk_for(0)
    trace.stamp(chunk)
    assert chunk == chunk_for(0)


def test_each_choice_gets_the_prompt_on_its_first_chunk_if_asked_for() -> None:
    trace = ChatTokenTrace(True, chunk_prompt=False, choice_prompts=True)
    carried: list[tuple[int, Any]] = []
    for index in (1, 0, 1, 0):
        prompt = [100 + index]
        content = Engine(index, True).delivers(1, 0) | {"prompt_token_ids": prompt}
        trace.push(index, content)
        chunk = chunk_for(index)
        trace.stamp(chunk)
        assert chunk.prompt_token_ids is None
        carried.append((index, getattr(chunk.choices[0], "prompt_token_ids", None)))
    assert carried == [(1, [101]), (0, [100]), (1, None), (0, None)]


def test_the_prompts_logprobs_are_built_with_a_choices_first_ones() -> None:
    trace = ChatTokenTrace(False, build_logprobs)
    engine = Engine(0, False)
    engine.meta_info["input_token_logprobs"] = [(None, 7, "<7>")]
    built = []
    for _ in range(2):
        trace.push(0, engine.delivers(1, 0))
        chunk = chunk_for(0)
        trace.stamp(chunk)
        built.append(chunk.choices[0].logprobs)
    assert built[0]["input_token_logprobs"] == [(None, 7, "<7>")]
    assert built[1] == logprobs([1])


def weight_versions(*generated: str | None, n_tokens: int = 1) -> list[str | None]:
    """What the chunks of a stream say, made of tokens of these versions."""
    trace = ChatTokenTrace(True)
    engine = Engine(0, True)
    said = []
    for version in generated:
        engine.meta_info["weight_version"] = version
        trace.push(0, engine.delivers(n_tokens, 0))
        chunk = chunk_for(0)
        trace.stamp(chunk)
        metadata = getattr(chunk, "metadata", None)
        said.append(metadata and metadata["weight_version"])
    return said


def test_the_first_chunk_says_the_weight_version_and_others_if_it_changed() -> None:
    assert weight_versions("a", "a", "a") == ["a", None, None]
    assert weight_versions("a", "b", "b") == ["a", "b", "b"]
    assert weight_versions("a", "b", "a", "a") == ["a", "b", "a", None]


def test_only_tokens_have_a_weight_version() -> None:
    assert weight_versions("a", "b", n_tokens=0) == ["a", None]
    assert weight_versions(None, None) == [None, None]


# From v0.5.11 on


@given(stream=STREAMS)
def test_logprobs_that_are_only_the_new_ones_are_joined(
    stream: list[tuple[str, Any]],
) -> None:
    trace = ChatTokenTrace(True, build_logprobs, incremental_logprobs=True)
    engines = [Engine(index, incremental=True) for index in range(3)]
    stamped = []
    for kind, what in [*stream, *(("stamp", (index,)) for index in range(3))]:
        if kind == "push":
            index, n_tokens, _ = what
            engines[index].meta_info = {}
            content = engines[index].delivers(n_tokens, 0)
            content["meta_info"] = logprobs(content["output_ids"])
            trace.push(index, content)
        else:
            chunk = chunk_for(*what)
            trace.stamp(chunk)
            stamped += chunk.choices
    for choice in stamped:
        if choice.token_ids:
            assert choice.logprobs == logprobs(choice.token_ids)


class Choice:
    """It has, as a struct of msgspec, no __dict__."""

    __slots__ = ("index", "logprobs", "prompt_token_ids", "token_ids")

    def __init__(self, index: int) -> None:
        self.index = index
        self.logprobs: Any = None
        self.prompt_token_ids: Any = None
        self.token_ids: Any = None


def model(**fields: Any) -> SimpleNamespace:
    return SimpleNamespace(**fields)


@pytest.mark.parametrize("name", ["token", "renamed"])
def test_a_struct_gets_its_fields_and_the_logprobs_that_their_model_dumps(
    name: str,
) -> None:
    """As they are, or as somebody's change to the models has them."""
    top = model(token="b", logprob=-2.0)
    dumped: dict[str, Any] = {
        "content": [
            {
                name: "a",
                "logprob": -1.0,
                "top_logprobs": [{"token": "b", "logprob": -2.0}],
            }
        ]
    }
    built = model(
        content=[model(token="a", logprob=-1.0, top_logprobs=[top])],
        model_dump=lambda: dumped,
    )
    trace = ChatTokenTrace(True, lambda answer: built, choice_prompts=True)
    engine = Engine(0, incremental=True)
    content = engine.delivers(2, 0)
    content["meta_info"]["weight_version"] = "v1"
    trace.push(0, content)
    choice = Choice(0)
    chunk = SimpleNamespace(choices=[choice])
    trace.stamp(chunk)
    assert choice.token_ids == [0, 1]
    assert choice.prompt_token_ids == chunk.prompt_token_ids == PROMPT
    assert choice.logprobs == dumped
    assert chunk.metadata == {"weight_version": "v1"}
    empty = Choice(0)
    trace.stamp(SimpleNamespace(choices=[empty]))
    assert empty.token_ids is empty.logprobs is None
    trace.push(0, engine.delivers(1, 0))
    later = Choice(0)
    trace.stamp(SimpleNamespace(choices=[later]))
    assert later.token_ids == [2]
    assert later.logprobs == dumped
