"""The engine repeats itself: the same non-streaming request twice, the same answer.

Must hold for the checks that compare streaming with non-streaming: where two equal
runs differ they are inconclusive. For a trainer it means that a rollout cannot be
repeated; that is no fault of the patches.
"""

from __future__ import annotations

from agentcore_verify.subject import Subject

PATCHES = ()

QUESTIONS = ("plain", "emoji", "long")


def check(subject: Subject) -> str:
    for question in QUESTIONS:
        subject.reference(question)
    return f"{len(QUESTIONS)} answers twice; logprobs within {subject.noise:.1g}"
