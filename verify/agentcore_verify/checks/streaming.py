"""A stream has its prompt's IDs once, and each new token ID with its text or before it.

`prompt_token_ids` are on the first chunk and no other. The `token_ids` of all chunks,
joined, decode to the joined text, and no chunk has text whose IDs come later. If not, a
trainer that cuts rollouts at chunks assigns tokens to the wrong step.
"""

from __future__ import annotations

from agentcore_verify.invariants import assert_whole
from agentcore_verify.subject import Subject

RULES = (1, 2, 3, 5)

QUESTIONS = ("plain", "silent", "second_turn_ada", "second_turn_bob", "long")


def check(subject: Subject) -> str:
    n_tokens = n_chunks = 0
    for question in QUESTIONS:
        for reply in (
            subject.stream(question),
            subject.stream(question, stream_options=None),
        ):
            assert_whole(subject, reply)
            n_tokens += len(reply.ids())
            n_chunks += len(reply.completions[0].pieces)
    return f"{n_tokens} tokens on {n_chunks} chunks, each with its text"
