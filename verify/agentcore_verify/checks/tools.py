"""Tool calls have their token IDs, on a server with a tool-call parser.

The parser holds text back until a call is complete. The IDs are sent with the chunk that
has the text of the call, at the latest with finish_reason; joined they are those of the
non-streaming answer. If not, an agent's trainer gets tool calls without the tokens that
the model generated for them.
"""

from __future__ import annotations

from typing import Any

from agentcore_verify.client import HttpError, is_refusal
from agentcore_verify.invariants import both_modes
from agentcore_verify.results import Failed, NotExercised, Skipped
from agentcore_verify.subject import Subject

RULES = (8,)

REQUESTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("tool", {}),
    ("two_tools", {}),
    ("text_then_tool", {}),
    ("tool", {"n": 2}),
)
OPTIONAL: tuple[tuple[str, dict[str, Any]], ...] = (
    ("tool_result", {}),
    ("call_list", {"tool_choice": "required"}),
)
"""Sent if the model's chat template and the server's grammar backend allow it."""


def check(subject: Subject) -> str:
    if subject.is_patched:
        subject.require_parser("--tool-call-parser")
    calls = dict.fromkeys(subject.profile.modes, 0)
    requests, optional = REQUESTS, OPTIONAL
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
            mode = "streaming" if reply.streamed else "non-streaming"
            # With tool_choice SGLang runs no parser.
            if not (options and subject.is_patched):
                calls[mode] += sum(len(one.tool_calls) for one in reply.completions)
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
