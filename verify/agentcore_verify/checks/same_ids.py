"""Streaming and non-streaming answers have the same prompt and completion IDs.

The `token_ids` of all chunks, joined, equal those of the non-streaming answer, up to the
stop token or `max_tokens`. If not, tokens were lost, repeated or swapped, and a trainer
computes its loss on a sequence that the model never sampled.
"""

from __future__ import annotations

from agentcore_verify.invariants import both_modes
from agentcore_verify.subject import Subject

RULES = (1, 2, 3, 4, 5)

QUESTIONS = ("plain", "emoji", "silent", "second_turn_ada", "second_turn_bob", "long")
LENGTHS = (1, 2, 9, 60)
"""`max_tokens` of further answers; some end in the middle of a character."""


def check(subject: Subject) -> str:
    answers = [both_modes(subject, question)[0] for question in QUESTIONS]
    answers += [both_modes(subject, "emoji", max_tokens=n)[0] for n in LENGTHS]
    n_tokens = sum(len(answer.ids()) for answer in answers)
    equal = "equal in both modes" if subject.profile.streams else "whole"
    return f"{n_tokens} tokens of {len(answers)} answers are {equal}"
