"""`audit` reads all shapes alike, and finds each planted defect and nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from agentcore_verify.audit.auditor import Auditor
from agentcore_verify.audit.findings import FINDINGS
from agentcore_verify.audit.readers import turns_of
from agentcore_verify.audit.results import Audit, Finding, State
from agentcore_verify.audit.tokens import Tokens
from tests.helpers import built_records
from tests.helpers.built_records import (
    END,
    SHAPES,
    START,
    THOUGHT,
    Json,
    Recorded,
    conversation,
    encode,
    kept,
    raw_answer,
    records,
    tokenizer,
)

Turns = list[Recorded]
Plant = Callable[[Any], Json]


TOKENS = Tokens(tokenizer())


def audited(lines: Sequence[Json], tokens: Tokens | None = TOKENS) -> Audit:
    auditor = Auditor(tokens)
    for number, line in enumerate(lines, 1):
        for turn in turns_of(line):
            auditor.add(turn, f"line {number}")
    return auditor.result()


def found(audit: Audit) -> dict[str, Finding]:
    return {row.name: row for row in audit.findings if row.state is State.FOUND}


def found_in(lines: Sequence[Json]) -> dict[str, Finding]:
    return found(audited(lines))


# Clean recordings.


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_is_read_like_chat(shape: str) -> None:
    turns = conversation(2, reasoning=True, call=True)
    of_chat = [read for line in records(turns) for read in turns_of(line)]
    seen = [read for line in kept(shape) for read in turns_of(line)]
    for turn, chat, read in zip(turns, of_chat, seen, strict=True):
        [expected], [answer] = chat.answers, read.answers
        if shape == "completions":
            chat = replace(chat, history=None)
            text = raw_answer(turn.text, turn.reasoning, turn.call)
            expected = replace(expected, text=text, reasoning="", calls=())
        if shape in ("rollout", "episode"):
            expected = replace(expected, versions=())
        # Chat alone names the pieces; each shape has its own finish reasons.
        expected = replace(expected, pieces=answer.pieces, finish=answer.finish)
        assert not answer.was_cut
        assert read == replace(chat, shape=read.shape, answers=(expected,))


def test_interleaved_conversations_are_kept_apart() -> None:
    one, other = conversation(3), conversation(3, first=1)
    mixed = [line for pair in zip(one, other, strict=True) for line in pair]

    for session in ("same", None):
        lines = [line for turn in mixed for line in records([turn], session)]
        audit = audited(lines)
        assert found(audit) == {} and audit.compared == 4


def test_a_turn_sampled_twice_is_not_a_broken_prefix() -> None:
    turns = conversation(3)
    lines = records([turns[0], turns[1], turns[1], turns[2]])

    assert found_in(lines) == {}


def test_a_failed_request_is_counted_and_left_out() -> None:
    [line] = records(conversation(1))
    failed: list[Json] = [
        {"request": {}, "response": {"error": {"message": "too long"}}},
        {"request": {}, "response": {"object": "error", "message": "too long"}},
        {"request": {}, "chunks": [{"type": "error", "error": {}}]},
    ]
    audit = audited([line, *failed])

    assert (audit.turns, audit.failed, found(audit)) == (1, 3, {})
    assert "3 failed requests" in audit.notes[0]


def test_each_prompt_of_a_completion_is_a_turn() -> None:
    both = [line["response"]["choices"][0] for line in kept("completions")]
    for index, choice in enumerate(both):
        choice["index"] = index
    answer = {"choices": both, "usage": {"completion_tokens": 99}}

    audit = audited([{"request": {}, "response": answer}])

    assert (audit.turns, audit.answers, found(audit)) == (2, 2, {})


def test_logprobs_of_an_echoed_prompt_are_left_out() -> None:
    [line, _] = kept("completions")
    [choice] = line["response"]["choices"]
    of_prompt = [None] + [-0.5] * (len(choice["prompt_token_ids"]) - 1)
    choice["logprobs"]["token_logprobs"][:0] = of_prompt
    line["request"]["echo"] = True

    audit = audited([line], None)

    assert found(audit) == {}


def test_flat_logprobs_are_read() -> None:
    [line] = records(conversation(1))
    [choice] = line["response"]["choices"]
    entries = choice.pop("logprobs")["content"]
    choice["token_logprobs"] = flat = [entry["logprob"] for entry in entries]
    assert found_in([line]) == {}
    flat.pop()
    assert [*found_in([line])] == ["logprobs-out-of-step"]


def test_text_before_and_after_a_tool_call_may_be_joined() -> None:
    [turn] = conversation(1, call=True)
    turn.says([*(turn.ids or [])[:-1], *encode(" So I wait."), *encode(END)], turn.text)
    turn.text += " So I wait."

    assert found_in(records([turn])) == {}


@pytest.mark.parametrize("name", ["token_ids", "response_token_ids", "named", "meta"])
def test_ids_are_found_by_each_name(name: str) -> None:
    [turn] = conversation(1)
    [line] = records([turn])
    [choice] = line["response"]["choices"]
    ids = choice.pop("token_ids")
    if name == "named":
        for one, entry in zip(ids, choice["logprobs"]["content"], strict=True):
            entry["token"] = f"token_id:{one}"
    elif name == "meta":
        rows = [[-0.5, one, None] for one in ids]
        choice["meta_info"] = {"output_token_logprobs": rows, "weight_version": "7"}
        del choice["logprobs"], choice["weight_versions"]
    else:
        choice[name] = ids

    assert found_in([line]) == {}
    ids[2] += 1
    if name == "named":
        entry = choice["logprobs"]["content"][2]
        entry["token"] = f"token_id:{ids[2]}"
    elif name == "meta":
        choice["meta_info"]["output_token_logprobs"][2][1] = ids[2]
    assert found_in([line]).keys() == {"text-differs"}


def test_versions_of_chunks_are_joined() -> None:
    [line, _] = kept("chat_stream")
    chunks = line["chunks"]
    for chunk in chunks:
        for choice in chunk["choices"]:
            choice.pop("weight_versions", None)
    chunks[0]["metadata"] = {"weight_version": "7"}
    for _ in range(2):  # Reading does not change the record.
        assert found_in([line]) == {}
    chunks[2]["metadata"] = {"weight_version": "8"}

    row = found_in([line])["weight-versions-mixed"]
    start = len(chunks[1]["choices"][0]["token_ids"])
    assert row.first and row.first.seen == (
        f"version 7 from token 0 to {start}, version 8 from token {start}"
    )


# Planted defects, in the last turn of a conversation.


def ending_with(*logprobs: float | None) -> Plant:
    return lambda turn: {"logprobs": [*turn.logprobs[: -len(logprobs)], *logprobs]}


def two_versions(turn: Recorded) -> Json:
    [span], half = turn.spans, turn.tokens // 2
    later = {"version": "8", "start": half, "end": turn.tokens}
    return {"spans": [{**span, "end": half}, later]}


DEFECTS: tuple[tuple[str, Plant, str], ...] = (
    ("ids-missing", lambda turn: {"ids": None}, "0 IDs"),
    ("prompt-ids-missing", lambda turn: {"prompt": None}, ""),
    (
        "ids-out-of-step",
        lambda turn: {"ids": turn.ids[:-1], "logprobs": turn.logprobs[:-1]},
        "tokens counted, ",
    ),
    ("logprobs-missing", lambda turn: {"logprobs": None}, "0 logprobs"),
    ("logprobs-padded", ending_with(*[0.0] * 9), "0, 0, 0, ..."),
    ("logprobs-padded", ending_with(-9999.0), "-9999"),
    ("logprobs-out-of-step", lambda turn: {"logprobs": turn.logprobs[1:]}, "logprobs"),
    ("logprobs-not-finite", ending_with(None), "null"),
    ("logprobs-not-finite", ending_with(math.nan), "nan"),
    ("logprobs-not-finite", ending_with(-math.inf), "-inf"),
    ("logprobs-not-finite", ending_with(0.5), "0.5"),
    ("text-differs", lambda turn: {"text": f"{turn.text[:-4]}xyz."}, "xyz"),
    ("weight-versions-mixed", two_versions, "version 8 from"),
    ("weight-version-missing", lambda turn: {"spans": []}, ""),
)
"""The finding, the changed attributes of the turn, and a part of the example."""


@pytest.mark.parametrize(("finding", "plant", "seen"), DEFECTS)
def test_a_planted_defect_is_found_and_no_other(
    finding: str, plant: Plant, seen: str
) -> None:
    for first, (reasoning, call) in enumerate(product((False, True), repeat=2)):
        turns = conversation(2, first=first, reasoning=reasoning, call=call)
        vars(turns[-1]).update(plant(turns[-1]))

        audit = audited(records(turns))

        assert found(audit).keys() == {finding}
        row = found(audit)[finding]
        assert (row.count, row.of) == (1, 2)
        assert row.first and row.first.session == "s"
        assert seen in row.first.seen
        assert audit.exit_code == 1


def test_every_finding_has_a_planted_defect() -> None:
    here = {finding for finding, *_ in DEFECTS} | {"drift", "prefix-broken"}
    assert here == {finding.name for finding in FINDINGS}


def test_logprobs_of_wrong_tokens_are_found() -> None:
    [turn] = conversation(1)
    [line] = records([turn])
    [choice] = line["response"]["choices"]
    names = [*choice["token_ids"][1:], choice["token_ids"][0]]
    for name, entry in zip(names, choice["logprobs"]["content"], strict=True):
        entry["token"] = f"token_id:{name}"

    assert found_in([line]).keys() == {"logprobs-out-of-step"}


def test_rounded_logprobs_may_be_zero() -> None:
    [turn] = conversation(1)
    turn.logprobs = [-0.1, *[0.0] * (turn.tokens - 2), -0.0012]

    assert found(audited(records([turn]), None)) == {}


# Drift.


def in_letters(text: str) -> list[int]:
    """Encode a text with one token per byte."""
    return [one for letter in text for one in encode(letter)]


def drifting(
    part: str, tokens_of: Callable[[str], list[int]] = in_letters, **more: Any
) -> Turns:
    """Make two turns; the model samples a part of the first as these tokens."""

    def spelled(number: int, text: str) -> list[int]:
        before, found, after = text.partition(part)
        if number or not found:
            return encode(text)
        return [*encode(before), *tokens_of(part), *encode(after)]

    return conversation(2, tokens_of=spelled, **more)


@pytest.mark.parametrize(
    ("turns", "cause"),
    [
        (lambda: drifting(" weather"), "split merges"),
        (lambda: drifting("\n\n", encode, reasoning=True), "whitespace"),
        (lambda: drifting(" 🕐", first=1), "emoji"),
    ],
)
def test_drift_is_found_with_its_cause(turns: Callable[[], Turns], cause: str) -> None:
    audit = audited(records(turns()))

    assert found(audit).keys() == {"drift"}
    row = found(audit)["drift"]
    assert row.causes == {cause: 1} and row.count == 1 and row.of == 2
    assert row.tokens and row.of_tokens and row.tokens < row.of_tokens
    assert row.share == row.tokens / row.of_tokens
    assert row.first and "tokenized again" in row.first.seen


@pytest.mark.parametrize(
    ("ids", "text", "finish", "cause"),
    [
        (
            [*encode("Hello"), *encode(START), *encode(" you")],
            "Hello you",
            "stop",
            "special tokens",
        ),
        (encode("It is 🕐")[:-1], "It is ", "length", "emoji"),
        (
            [*encode("Hello there\n\n"), *encode(END)],
            "Hello there",
            "stop",
            "whitespace",
        ),
    ],
)
def test_a_text_that_leaves_tokens_out_is_drift(
    ids: list[int], text: str, finish: str, cause: str
) -> None:
    [turn] = conversation(1)
    turn.says(ids, text)
    turn.finish = finish

    assert found_in(records([turn]))["drift"].causes == {cause: 1}


def test_a_trimmed_stop_string_is_not_a_finding() -> None:
    [turn] = conversation(1)
    turn.says(encode("Hello there"), "Hello ")
    [line] = records([turn])

    assert found_in([line]).keys() == {"text-differs"}
    line["request"]["stop"] = ["there"]
    assert found_in([line]) == {}


@pytest.mark.parametrize(
    ("answer", "drifts"),
    [
        (encode("Hello! How are you"), False),
        (in_letters("Hello! How are you"), True),
    ],
)
def test_drift_is_found_without_ids(answer: list[int], drifts: bool) -> None:
    [turn] = conversation(1)
    turn.says([*answer, *encode(END)], "Hello! How are you")
    [by_logprobs] = records([turn])
    del by_logprobs["response"]["choices"][0]["token_ids"]
    turn.ids = turn.logprobs = None
    [by_count] = records([turn])

    for line, cause in (
        (by_logprobs, "split merges"),
        (by_count, "another number of tokens"),
    ):
        rows = found_in([line])
        assert ("drift" in rows) is drifts
        assert not drifts or rows["drift"].causes == {cause: 1}


# Prefixes.


def thinking_dropped() -> Turns:
    turns = conversation(2, reasoning=True)
    thought = encode(f"<think>\n{THOUGHT}\n</think>\n\n")
    prompt = turns[1].prompt or []
    start = len(turns[0].prompt or [])
    turns[1].prompt = prompt[:start] + prompt[start + len(thought) :]
    for message in turns[1].messages:
        message.pop("reasoning_content", None)
    return turns


def with_prompt(turns: Turns, old: str, new: str) -> Turns:
    """Replace text in the second prompt."""
    text = built_records.decode(turns[1].prompt or [])
    assert old in text
    turns[1].prompt = encode(text.replace(old, new))
    return turns


def system_changed() -> Turns:
    turns = with_prompt(conversation(2), "Be kind.", "Be brief.")
    system = {"role": "system", "content": "Be brief."}
    turns[1].messages = [system, *turns[1].messages[1:]]
    return turns


def tools_changed() -> Turns:
    turns = with_prompt(conversation(2), "Be kind.", "Be kind. Call tools.")
    turns[1].tools = [{"type": "function", "function": {"name": "f"}}]
    return turns


def separator() -> Turns:
    turns = conversation(2)
    assert turns[0].text.endswith("lines.")
    turns[0].says(encode(f"{turns[0].text}\n{END}"), f"{turns[0].text}\n")
    return turns


def history_cut() -> Turns:
    turns = conversation(2)
    turns[1].prompt = (turns[0].prompt or []) + (turns[0].ids or [])[:3]
    return turns


BREAKS = {
    "thinking dropped": thinking_dropped,
    "tool call reformatted": lambda: with_prompt(
        conversation(2, call=True), '"Paris", "days": 3', '"Paris","days":3'
    ),
    "system prompt changed": system_changed,
    "tools changed": tools_changed,
    "separator": separator,
    "text tokenized again": lambda: with_prompt(
        drifting(" weather"), "weather", "weather"
    ),
    "history changed": lambda: with_prompt(
        conversation(2), "weather is fine", "sea was rough"
    ),
    "history cut": history_cut,
}


GUESSED = {"separator", "history changed", "text tokenized again"}
"""Reasons that only a tokenizer shows."""


@pytest.mark.parametrize("why", BREAKS)
def test_a_broken_prefix_is_found_with_its_reason(why: str) -> None:
    lines = records(BREAKS[why]())
    audit = audited(lines)

    drifts = {"drift"} if why == "text tokenized again" else set()
    assert found(audit).keys() == {"prefix-broken"} | drifts
    row = found(audit)["prefix-broken"]
    assert (row.count, row.of, row.causes) == (1, 1, {why: 1})
    assert row.first and row.first.place == "line 2"
    assert "differs after" in row.first.seen and "the prompt has" in row.first.seen

    [row] = found(audited(lines, None)).values()
    assert row.name == "prefix-broken" and row.first
    reason = "unknown without --tokenizer" if why in GUESSED else why
    assert row.causes == {reason: 1}


def test_a_replaced_end_of_turn_token_is_clean() -> None:
    turns = conversation(2)
    prompt = turns[1].prompt or []
    end = len(turns[0].prompt or []) + turns[0].tokens - 1
    assert prompt[end : end + 1] == encode(END)
    turns[1].prompt = [*prompt[:end], *encode(START), *prompt[end + 1 :]]

    assert found_in(records(turns)) == {}
    turns[0].finish = "length"
    assert found_in(records(turns)).keys() == {"prefix-broken"}


def test_a_turn_without_its_previous_turn_is_reported() -> None:
    audit = audited(records(conversation(3)[1:]))

    assert (audit.compared, audit.unmatched, found(audit)) == (1, 1, {})
    assert any("1 turns were not compared" in note for note in audit.notes)
