"""Reasoning has its token IDs, on a server with a reasoning parser.

Chunks with `reasoning_content` have the IDs of that text, tags included; joined with the
others they are those of the non-streaming answer. If not, a trainer loses the reasoning,
most of what a reasoning model is trained on.
"""

from __future__ import annotations

from typing import Any

from agentcore_verify.invariants import both_modes
from agentcore_verify.results import NotExercised
from agentcore_verify.subject import Subject

RULES = (8,)

REQUESTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("reasoning", {}),
    ("reasoning", {"stream_reasoning": False}),
    ("reasoning_then_tool", {"tools": True}),
)


def check(subject: Subject) -> str:
    requests, asking = REQUESTS[:1], {}
    subject.require_parser("--reasoning-parser")
    if subject.is_patched:
        requests, asking = REQUESTS, {"separate_reasoning": True}
    letters = dict.fromkeys(subject.profile.modes, 0)
    for question, options in requests:
        for reply in both_modes(subject, question, **asking, **options):
            mode = "streaming" if reply.streamed else "non-streaming"
            letters[mode] += len(reply.completions[0].reasoning_content)
    if not all(letters.values()):
        raise NotExercised(
            "The parser found no reasoning.",
            advice="The model may need another --reasoning-parser, or does not reason.",
        )
    return f"{sum(letters.values())} characters of reasoning, with their IDs"
