"""Streaming or not, a question has the same prompt and completion IDs.

Joined over all chunks, the IDs of a stream equal those of the non-streaming answer, to
the stop token or to `max_tokens`. If not, tokens were lost, repeated or swapped on the
way, and a trainer computes its loss on a sequence that the model never sampled.
"""

from __future__ import annotations

from agentcore_verify.invariants import both_modes
from agentcore_verify.subject import Subject

PATCHES = ("token-ids",)

QUESTIONS = ("plain", "emoji", "silent", "second_turn_ada", "second_turn_bob", "long")
LENGTHS = (1, 2, 9, 60)
"""Answers cut short to so many tokens, also inside a character."""


def check(subject: Subject) -> str:
    n_tokens = n_answers = 0
    for question in QUESTIONS:
        whole, _ = both_modes(subject, question)
        n_tokens, n_answers = n_tokens + len(whole.ids()), n_answers + 1
    for length in LENGTHS:
        whole, _ = both_modes(subject, "emoji", max_tokens=length)
        n_tokens, n_answers = n_tokens + len(whole.ids()), n_answers + 1
    return f"{n_tokens} tokens of {n_answers} answers are the same in both modes"
