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

REQUESTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("reasoning", {}),
    ("reasoning", {"stream_reasoning": False}),
    ("reasoning_then_tool", {"tools": True}),
)


def check(subject: Subject) -> str:
    subject.require_parser("--reasoning-parser")
    letters = {"non-streaming": 0, "streaming": 0}
    for question, options in REQUESTS:
        for reply in both_modes(subject, question, separate_reasoning=True, **options):
            mode = "streaming" if reply.streamed else "non-streaming"
            letters[mode] += len(reply.completions[0].reasoning_content)
    if not all(letters.values()):
        raise NotExercised(
            "The parser found no reasoning.",
            advice="The model may need another --reasoning-parser, or does not reason.",
        )
    return f"{letters['streaming']} characters of reasoning, with their IDs"
