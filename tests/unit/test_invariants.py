"""The invariants of responses, on hand-written responses."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

from agentcore_verify.client import read_events
from agentcore_verify.differences import logprob_distance, text_difference
from agentcore_verify.invariants import assert_whole
from agentcore_verify.parallel import in_threads
from agentcore_verify.results import Failed
from agentcore_verify.subject import Exchange, Subject


class Spelled(Subject):
    """A server whose token IDs are the numbers of characters."""

    def __init__(self) -> None:
        super().__init__("http://nowhere")
        self.can_decode = True

    def decode_all(
        self, sequences: Sequence[Sequence[int]], *, special: bool = False
    ) -> list[str]:
        return ["".join(map(chr, ids)) for ids in sequences]


SUBJECT = Spelled()
QUESTION = "why"


def ids(text: str) -> list[int]:
    return [ord(letter) for letter in text]


def chunk(delta: dict[str, Any] | None = None, **choice: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta or {}, "finish_reason": None, **choice}
    return {"choices": [choice]}


def call(**function: str) -> dict[str, Any]:
    return {"tool_calls": [{"index": 0, "function": function}]}


def streamed(*chunks: dict[str, Any], **body: Any) -> Exchange:
    """Return a stream of these chunks, with the prompt on the first and a finish."""
    first = {**chunks[0], "prompt_token_ids": ids(f"<user>{QUESTION}")}
    events = [first, *chunks[1:], chunk(finish_reason="stop", matched_stop=None)]
    request = {
        "messages": [{"role": "user", "content": QUESTION}],
        "temperature": 0,
        "separate_reasoning": False,
        "stream": True,
        **body,
    }
    return Exchange("streaming 'q'", request, read_events(events))


def said(text: str | None, ids_of: str | None = None) -> dict[str, Any]:
    """Return a chunk with content, and with the IDs of this text."""
    more = {} if ids_of is None else {"token_ids": ids(ids_of)}
    return chunk({} if text is None else {"content": text}, **more)


def test_an_error_of_a_parser_is_no_text_of_the_model() -> None:
    assert_whole(SUBJECT, streamed(said("ERROR: no call", "<call>"), tools=[{}]))


REPEATED = (
    # Chunks of a 0.5.9 server with --stream-interval 4, spelled in characters.
    said('ty": "', 'ty": "'),
    said("東", "東\ufffd"),
    said("東世\ufffd", "世\ufffd\ufffd"),
)


def test_a_character_that_sglang_repeats_is_not_a_failure() -> None:
    assert_whole(SUBJECT, streamed(*REPEATED, temperature=1.0))


@pytest.mark.parametrize(
    ("position", "change"),
    [
        (0, said('ty": "', 'ty": ')),
        (1, said("東", "\ufffd")),
        (2, said("東世", "界")),
        (2, said('"世', "世")),
    ],
)
def test_text_that_differs_from_the_ids_is_a_failure(
    position: int, change: dict[str, Any]
) -> None:
    chunks = [*REPEATED]
    chunks[position] = change
    with pytest.raises(Failed, match="do not decode to its text"):
        assert_whole(SUBJECT, streamed(*chunks, temperature=1.0))


def test_a_tool_call_may_not_come_before_its_ids() -> None:
    reply = streamed(
        chunk(call(name="f"), token_ids=ids("<call>f(")),
        chunk(call(arguments='{"city": "Rome"}'), token_ids=ids("{city: ")),
        chunk(token_ids=ids("Rome})")),
        tools=[{}],
    )
    with pytest.raises(Failed, match="chunk 1 of the stream has text"):
        assert_whole(SUBJECT, reply)


@pytest.mark.parametrize("bad", [-1, True, "7", 1.5, None])
def test_a_value_that_is_not_a_token_id_is_named(bad: object) -> None:
    reply = streamed(chunk({"content": "a"}, token_ids=[97, bad]))
    with pytest.raises(Failed, match="at position 1 is not a token ID"):
        assert_whole(SUBJECT, reply)


@pytest.mark.parametrize(
    ("one", "other", "rows"),
    [
        ("abcdefg", "abcefg", {3: ("d", "")}),
        ("abcdefg", "abcxefg", {3: ("d", "x")}),
        ("abcdefg", "abc", {3: ("d", ""), 4: ("e", ""), 5: ("f", ""), 6: ("g", "")}),
    ],
)
def test_sequences_are_aligned_where_they_differ(
    one: str, other: str, rows: dict[int, tuple[str, str]]
) -> None:
    shown = SUBJECT.id_difference("one", ids(one), "other", ids(other)).rows
    apart = {row.position: (row.left, row.right) for row in shown if not row.same}
    assert apart == {
        position: tuple(letter and f"{ord(letter)} '{letter}'" for letter in pair)
        for position, pair in rows.items()
    }


def test_without_decoding_only_ids_and_counts_are_checked() -> None:
    behind_router = Subject("http://nowhere")
    behind_router.can_decode = False
    other_text = streamed(chunk({"content": "ab"}, token_ids=ids("xy")))
    assert_whole(behind_router, other_text)
    short = streamed(chunk({"content": "ab"}, token_ids=ids("ab")), logprobs=True)
    with pytest.raises(Failed, match="2 token_ids but 0 logprobs"):
        assert_whole(behind_router, short)
    rows = behind_router.id_difference("one", [1], "other", [2]).rows
    assert [(row.left, row.right) for row in rows] == [("1", "2")]


def test_only_the_surroundings_of_a_difference_are_shown() -> None:
    long = "x" * 500
    shown = SUBJECT.id_difference("one", ids(f"{long}a{long}"), "other", ids(long * 2))
    positions = [row.position for row in shown.rows]
    assert 500 in positions
    assert len(positions) < 12 and min(positions) > 490
    [row] = text_difference("one", "x" * 99 + "abc", "other", "x" * 99 + "c").rows
    assert row.position == 87
    assert row.left.endswith("abc'") and row.right.endswith("xc'")


def test_logprobs_are_compared_by_rank() -> None:
    def entry(value: float, *tops: float) -> dict[str, Any]:
        return {"logprob": value, "top_logprobs": [{"logprob": top} for top in tops]}

    assert logprob_distance([entry(-1, -1, -2)], [entry(-1, -2, -1)]) == 0
    assert logprob_distance([entry(-1)], [entry(-1.5)]) == 0.5
    assert logprob_distance([entry(-1, -1)], [entry(-1)]) == float("inf")
    assert logprob_distance([entry(-1)], []) == float("inf")


def test_an_error_waits_for_the_other_threads_but_an_interrupt_does_not() -> None:
    go_on = threading.Event()
    with pytest.raises(KeyboardInterrupt), in_threads([go_on.wait]) as asked:
        raise KeyboardInterrupt
    assert not asked[0].done()
    go_on.set()
    with pytest.raises(Failed), in_threads([lambda: time.sleep(0.1)]) as others:
        raise Failed("-")
    assert others[0].done()
