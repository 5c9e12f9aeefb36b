"""Checks of answers with tool calls, reasoning, several choices or a limit."""

from __future__ import annotations

import re
from typing import Any

from agentcore_verify.checks.registry import check
from agentcore_verify.client import HttpError, is_refusal
from agentcore_verify.invariants import assert_first, assert_whole, both_modes
from agentcore_verify.results import Failed, NotExercised, Skipped
from agentcore_verify.subject import Exchange, Subject

Requests = tuple[tuple[str, dict[str, Any]], ...]
"""Questions, each with the options of its request."""

TOOLS: Requests = (
    ("tool", {}),
    ("two_tools", {}),
    ("text_then_tool", {}),
    ("tool", {"n": 2}),
)
OPTIONAL_TOOLS: Requests = (
    ("tool_result", {}),
    ("call_list", {"tool_choice": "required"}),
)
"""Sent if the model's chat template and the server's grammar backend allow it."""

REASONING: Requests = (
    ("reasoning", {}),
    ("reasoning", {"stream_reasoning": False}),
    ("reasoning_then_tool", {"tools": True}),
)


@check(8, through_router=True)
def tools(subject: Subject) -> str:
    """Tool calls have their token IDs, on a server with a tool-call parser.

    The parser holds text back until a call is complete. The IDs are sent with the chunk
    that has the text of the call, at the latest with finish_reason; joined they are
    those of the non-streaming answer. If not, an agent's trainer gets tool calls
    without the tokens that the model generated for them.
    """
    if subject.is_patched:
        subject.require_parser("--tool-call-parser")
    calls = dict.fromkeys(subject.profile.modes, 0)
    requests, optional = TOOLS, OPTIONAL_TOOLS
    if not subject.is_patched:
        # Other engines may have a parser, or only serve tools if a call is required.
        required = {"tool_choice": "required"}
        requests = ()
        optional = (("tool", required), ("call_list", required), ("tool", {}))
    allowed = [request for request in optional if _is_allowed(subject, *request)]
    if not (requests or allowed):
        raise Skipped("The server refuses tools.")
    for question, options in (*requests, *allowed):
        for reply in both_modes(subject, question, tools=True, **options):
            # With tool_choice SGLang runs no parser.
            if not (options and subject.is_patched):
                calls[reply.mode] += sum(len(o.tool_calls) for o in reply.completions)
    silent = [mode for mode, count in calls.items() if not count]
    if silent:
        raise NotExercised(
            f"The parser found no tool call ({' and '.join(silent)}).",
            advice="The model may need another --tool-call-parser, or calls no tools.",
        )
    return ", ".join(f"{count} tool calls {mode}" for mode, count in calls.items())


def _is_allowed(subject: Subject, question: str, options: dict[str, Any]) -> bool:
    try:
        subject.ask(question, tools=True, **options, max_tokens=8)
    except Failed as failure:
        cause = failure.__cause__
        if subject.is_patched:
            return not (isinstance(cause, HttpError) and cause.status == 400)
        return not is_refusal(cause)
    return True


@check(8, through_router=True)
def reasoning(subject: Subject) -> str:
    """Reasoning has its token IDs, on a server with a reasoning parser.

    Chunks with `reasoning_content` have the IDs of that text, tags included; joined
    with the others they are those of the non-streaming answer. If not, a trainer loses
    the reasoning, most of what a reasoning model is trained on.
    """
    requests, asking = REASONING[:1], {}
    subject.require_parser("--reasoning-parser")
    if subject.is_patched:
        requests, asking = REASONING, {"separate_reasoning": True}
    letters = dict.fromkeys(subject.profile.modes, 0)
    for question, options in requests:
        for reply in both_modes(subject, question, **asking, **options):
            letters[reply.mode] += len(reply.completions[0].reasoning_content)
    if not all(letters.values()):
        raise NotExercised(
            "The parser found no reasoning.",
            advice="The model may need another --reasoning-parser, or does not reason.",
        )
    return f"{sum(letters.values())} characters of reasoning, with their IDs"


@check(6, through_router=True)
def choices(subject: Subject) -> str:
    """With n > 1 each choice has its own token IDs, with and without streaming.

    Two choices of greedy decoding are equal in both modes. Of three sampled choices,
    which differ, the IDs of each decode to the text of that choice. If not, a trainer
    that samples a group of answers per question assigns rewards to the wrong tokens.
    """
    if subject.is_patched:  # vLLM refuses n > 1 with greedy decoding.
        both_modes(subject, "plain", n=2)
        both_modes(subject, "emoji", n=2)
    all_differ = True
    for stream in subject.profile.modes.values():
        # So long that equal answers are not a coincidence.
        asked = {"n": 3, "temperature": 1.0, "logprobs": True, "stream": stream}
        with subject.unless_refused("n > 1"):
            reply = subject.ask("long", **asked)
        assert_whole(subject, reply)
        all_differ &= len({reply.ids(choice) for choice in range(3)}) > 1
    if not all_differ:
        raise NotExercised(
            "All sampled choices are equal, so mixed-up choices could not be noticed."
        )
    return "sampled choices, each with its own IDs"


@check(7, through_router=True)
def stop(subject: Subject) -> str:
    """Stop strings, stop tokens and max_tokens end the token IDs where generation ended.

    In both modes the IDs are the first ones of the answer without that limit. They
    include the stop token and the tokens of the stop string, which the text does not.
    If not, a trainer never sees the token with which the model should learn to stop.
    """
    full = subject.reference("plain")
    [completion] = full.completions
    # A reasoning model may only have thought so far.
    word = _word(completion.reasoning_content + completion.content)
    middle = len(full.ids()) // 2
    token = full.ids()[middle]
    n_to_token = full.ids().index(token) + 1

    _assert_cut(subject, full, "stop", None, stop=word)
    if subject.is_patched:
        _assert_cut(subject, full, "stop", None, stop=[word], no_stop_trim=True)
    if subject.profile.has_stop_tokens:
        _assert_cut(subject, full, "stop", n_to_token, stop_token_ids=[token])
    _assert_cut(subject, full, "length", middle, max_tokens=middle)
    return f"stop string {word!r}, a stop token and max_tokens"


def _word(text: str) -> str:
    words = re.findall(r"[A-Za-z]{3,}", text)
    for word in map(str, words[len(words) // 2 :]):
        if text.find(word) >= len(text) // 3:
            return word
    raise NotExercised(f"The answer {text!r} has no word to use as a stop string.")


def _assert_cut(
    subject: Subject, full: Exchange, finish: str, n_ids: int | None, **options: Any
) -> None:
    """Check that both modes give the first IDs of the full answer, `n_ids` if given."""
    for reply in both_modes(subject, "plain", **options):
        what = f"{reply.where} with {options}"
        ids = reply.ids()
        assert_first(subject, what, ids, full)
        if len(ids) == len(full.ids()):
            raise Failed(f"{what}: the answer is not cut.")
        if reply.completions[0].finish_reason != finish:
            raise Failed(
                f"{what}: finish_reason is {reply.completions[0].finish_reason!r} "
                f"instead of {finish!r}."
            )
        if n_ids not in (None, len(ids)):
            raise Failed(f"{what}: {len(ids)} token_ids instead of {n_ids}.")
