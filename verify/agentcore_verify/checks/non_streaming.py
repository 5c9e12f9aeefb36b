"""A non-streaming answer has the token IDs of its prompt and of each choice.

`prompt_token_ids` of the response decode to the prompt, `choices[i].token_ids` to the
text of the choice; there are as many as `usage` counts, including the stop token. If not,
a trainer learns other tokens than the model generated.
"""

from __future__ import annotations

from agentcore_verify.invariants import assert_whole
from agentcore_verify.subject import Subject

RULES = (1, 2, 3)

QUESTIONS = ("plain", "emoji", "silent", "second_turn_ada", "second_turn_bob", "long")


def check(subject: Subject) -> str:
    n_tokens = 0
    for question in QUESTIONS:
        reply = subject.ask(question)
        assert_whole(subject, reply)
        n_tokens += len(reply.ids())
    return f"{n_tokens} tokens of {len(QUESTIONS)} answers decode to their text"
