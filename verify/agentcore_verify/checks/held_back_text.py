"""IDs whose text is held back are not lost: parts of a character, ends of words.

A token that is a part of a character has no text until the character is whole. Its ID
goes out with the next chunk of its choice, at the latest the one that finishes it. If
not, every emoji or Chinese character leaves a hole in what a trainer sees.
"""

from __future__ import annotations

from agentcore_verify.invariants import both_modes
from agentcore_verify.results import NotExercised
from agentcore_verify.subject import Subject

PATCHES = ("token-ids",)

QUESTIONS = ("emoji", "cjk")


def check(subject: Subject) -> str:
    n_parts = 0
    for question in QUESTIONS:
        whole, _ = both_modes(subject, question)
        texts = subject.decode_all([[value] for value in whole.ids()])
        n_parts += sum("\ufffd" in text for text in texts)
    if not n_parts:
        raise NotExercised(
            "No answer had a token that is a part of a character.",
            advice="The model answered without emoji, or has a token for each.",
        )
    return f"{n_parts} tokens that are parts of a character"
