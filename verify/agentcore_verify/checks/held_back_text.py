"""Token IDs are sent even while their text is held back, as for half of an emoji.

A token that is only a part of a character has no text until the character is complete.
Its ID is sent with the next chunk of its choice, at the latest with finish_reason. If
not, the IDs that a trainer gets have a hole at every emoji or Chinese character.
"""

from __future__ import annotations

from agentcore_verify.invariants import both_modes
from agentcore_verify.results import NotExercised
from agentcore_verify.subject import Subject

RULES = (4, 5)

QUESTIONS = ("emoji", "cjk")


def check(subject: Subject) -> str:
    n_parts = 0
    for question in QUESTIONS:
        whole, _ = both_modes(subject, question)
        texts = subject.decode_all([[value] for value in whole.ids()])
        n_parts += sum("\ufffd" in text for text in texts)
    if not n_parts:
        raise NotExercised(
            "No answer has a token that is a part of a character.",
            advice="The model answered without emoji, or has one token for each.",
        )
    return f"{n_parts} tokens that are a part of a character"
