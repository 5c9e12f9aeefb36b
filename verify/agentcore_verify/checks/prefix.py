"""Each turn's prompt starts with the exact tokens of the earlier turns.

The tokens of the earlier turns come from `required_prefix_token_ids`, from the assistant's
messages, or from the server's memory; the chat template's next text follows them, and no
turn is closed twice. A turn proves this only if its text, tokenized again, has other tokens;
therefore some turns are sampled, at temperatures up to 2. Two conversations that the server
remembers never mix. If not, a trainer learns from tokens that the model did not sample.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from agentcore_verify.audit.turns import Call
from agentcore_verify.checks.registry import check
from agentcore_verify.client import Completion, Json
from agentcore_verify.results import Failed, NotExercised, Skipped
from agentcore_verify.scripted_model import line
from agentcore_verify.subject import Exchange, Subject

QUESTIONS = ("tool", "plain", "reasoning", "emoji")
MAX_TOKENS = 60

TEMPERATURES = (1.0, 1.5, 2.0)
"""Of sampled turns; a hot one rarely has the tokens that a tokenizer would choose."""

TURNS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("plain", {}),
    ("emoji", {}),
    ("tool", {"tools": True}),
    *(("long", {"temperature": each, "top_p": 1.0}) for each in TEMPERATURES),
)
"""First turns, whose tokens a second one must keep."""

UNTOLD = (
    "Each turn's text, tokenized again, has its tokens, so nothing shows who kept them."
)

BAD: tuple[tuple[list[object], str, Json], ...] = (
    ([-1], "an ID below 0", {}),
    (["7"], "an ID that is text", {}),
    ([7], "with input_ids", {"input_ids": [7]}),
    ([7], "without an answer before it", {"messages": line("plain").messages}),
)


@check(17)
def prefix(subject: Subject) -> str:
    if not subject.is_patched:
        return _assert_history(subject)
    n_telling = 0
    for by_message in (False, True):
        for stream in (False, True):
            n_telling += _assert_turns(subject, by_message, stream)
    _assert_refused(subject)
    remembers = _assert_memory(subject)
    if not n_telling:
        raise NotExercised(UNTOLD)
    return f"4 conversations of {len(QUESTIONS)} turns; the server remembers " + (
        "what it answered" if remembers else "nothing"
    )


def _assert_history(subject: Subject) -> str:
    """Check the prompts of second turns whose history is messages."""
    n_telling = 0
    for question, options in TURNS:
        more = {"max_tokens": MAX_TOKENS, **options, **subject.profile.neutral}
        try:
            with (
                subject.unless_refused("tools") if "tools" in options else nullcontext()
            ):
                first = subject.ask(question, **more)
        except Skipped:
            if "tools" not in options:
                raise
            continue
        message = message_of(first.completions[0])
        messages = [*first.body["messages"], message, *_next(message, 0)]
        second = subject.ask(question, **{**more, "messages": messages})
        past, prompt = [*first.prompt_ids, *first.ids()], second.prompt_ids
        subject.assert_ids(
            "The prompt of a second turn does not start with the tokens of the first: "
            "the chat template renders the text of the first again.",
            *("first turn", past, "prompt", prompt[: len(past)]),
            advice="Send each turn as token IDs, if the server takes them.",
        )
        n_telling += _tells(subject, first)
    if not n_telling:
        raise NotExercised(UNTOLD)
    return f"second turns start with the first, {n_telling} of them not by chance"


def _tells(subject: Subject, reply: Exchange) -> bool:
    """True if a server that tokenizes the answer's text again gets other tokens.

    The text is sent as a question: its tokens are in that prompt, apart from the ends.
    """
    [completion] = reply.completions
    text, ids = completion.content, reply.ids()
    if completion.tool_calls or completion.reasoning_content:
        if not subject.can_decode:
            return False
        text = subject.decode(ids, special=True)
    asked = [{"role": "user", "content": text}]
    prompt = subject.ask("plain", messages=asked, max_tokens=1).prompt_ids
    inner = ids[1:-2]
    starts = range(len(prompt) - len(inner) + 1)
    return all(prompt[start : start + len(inner)] != inner for start in starts)


def _assert_turns(subject: Subject, by_message: bool, stream: bool) -> int:
    """Check a conversation, sampled if streamed; count the turns that could tell."""
    messages = line(QUESTIONS[0]).messages
    asked: Json = {}
    required: Sequence[int] = ()
    n_telling = 0
    for number, question in enumerate(QUESTIONS):
        if stream:
            heat = TEMPERATURES[number % len(TEMPERATURES)]
            asked |= {"temperature": heat, "top_p": 1.0, **subject.profile.neutral}
        reply = _ask(subject, question, messages, stream=stream, **asked)
        if number > 0:
            source = "message" if by_message else "request"
            _assert_continued(subject, reply, required, source)
        required = [*reply.prompt_ids, *reply.ids()]
        [completion] = reply.completions
        message = message_of(completion)
        if by_message:
            message["prompt_token_ids"] = list(reply.prompt_ids)
            message["token_ids"] = list(reply.ids())
        else:
            asked["required_prefix_token_ids"] = required
        messages = [*messages, message, *_next(message, number)]
        # Nothing follows the last answer.
        n_telling += number < len(QUESTIONS) - 1 and _tells(subject, reply)
    return n_telling


def _ask(
    subject: Subject, question: str, messages: list[Json], **more: object
) -> Exchange:
    return subject.ask(
        question, tools=True, messages=messages, max_tokens=MAX_TOKENS, **more
    )


def _assert_continued(
    subject: Subject, reply: Exchange, required: Sequence[int], source: str
) -> None:
    where = f"{reply.where} with a prefix by {source}"
    prefix = _prefix_of(reply)
    if prefix is None or prefix.get("source") != source:
        raise Failed(f"{where}: metadata.prefix of the answer is {prefix}.")
    kept = prefix["kept"]
    if prefix["required"] != len(required) or kept not in (
        len(required),
        len(required) - 1,
    ):
        raise Failed(
            f"{where}: {len(required)} token IDs were required, but metadata.prefix says "
            f"{prefix}."
        )
    prompt = reply.prompt_ids
    subject.assert_ids(
        f"{where}: the prompt does not start with the tokens of the earlier turns.",
        *("required", required[:kept], "prompt_token_ids", prompt[:kept]),
    )
    if len(prompt) <= kept:
        raise Failed(f"{where}: nothing follows the prefix.")
    if kept == len(required) and prompt[kept] == required[-1]:
        raise Failed(f"{where}: the previous turn is closed twice.")


def _assert_refused(subject: Subject) -> None:
    first = line("plain").messages
    messages = [*first, {"role": "assistant", "content": "Hello."}, *first]
    for required, what, more in BAD:
        for stream in (False, True):
            asked = {"messages": messages, "required_prefix_token_ids": required}
            body = subject.body("plain", **{**asked, **more}, stream=stream)
            where = f"required_prefix_token_ids, {what}"
            subject.assert_refused(body, where, "required_prefix_token_ids")


def _assert_memory(subject: Subject) -> bool:
    """Run two conversations that differ in the system message; True if one is continued."""
    is_continued = False
    turns = []
    for word in ("amber", "cobalt"):
        messages = [{"role": "system", "content": word}, *line("plain").messages]
        turns.append((messages, _ask(subject, "plain", messages)))
    for messages, reply in turns:
        message = message_of(reply.completions[0])
        second = _ask(subject, "plain", [*messages, message, *_next(message, 1)])
        prefix = _prefix_of(second)
        # With "template", the server reports why its memory has no such turn.
        if prefix is not None and prefix.get("source") != "template":
            required = [*reply.prompt_ids, *reply.ids()]
            _assert_continued(subject, second, required, "server")
            is_continued = True
    return is_continued


def _prefix_of(reply: Exchange) -> Json | None:
    prefix: Json | None = (reply.answer.events[0].get("metadata") or {}).get("prefix")
    return prefix


def message_of(completion: Completion) -> Json:
    """Return the assistant's message, as a client sends it back."""
    message: Json = {"role": "assistant", "content": completion.content}
    calls = [call for call in completion.tool_calls if _is_sent_back(call)]
    if calls:
        message["tool_calls"] = [
            {
                "id": call.id or f"call_{number}",
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for number, call in enumerate(calls)
        ]
    return message


def _is_sent_back(call: Call) -> bool:
    """True if SGLang accepts the arguments of a call: a model may break them."""
    try:
        return isinstance(json.loads(call.arguments), dict)
    except ValueError:
        return False


def _next(message: Json, number: int) -> list[Json]:
    """Return the messages after an answer: results of tools, or the next question."""
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": "sunny, 20 C"}
        for call in message.get("tool_calls", ())
    ]
    following = QUESTIONS[(number + 1) % len(QUESTIONS)]
    return results or [{"role": "user", "content": line(following).question}]
