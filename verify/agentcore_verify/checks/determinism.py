"""The engine is deterministic: two identical requests get the same answer.

The checks that compare answers need this: if two identical requests get different
answers, they are inconclusive. For a trainer, a rollout then cannot be repeated; the
patches have no influence on this.
"""

from __future__ import annotations

from agentcore_verify.subject import Subject

QUESTIONS = ("plain", "emoji", "long")


def check(subject: Subject) -> str:
    for question in QUESTIONS:
        subject.reference(question)
    return f"{len(QUESTIONS)} answers repeated; logprobs within {subject.noise:.1g}"
