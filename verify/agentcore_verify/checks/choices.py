"""With `n` > 1 each choice has its own IDs, streamed or not.

Two greedy choices are the same in both modes; of three sampled ones, which differ, the
IDs of each decode to the text of that choice and no other. If not, a trainer that draws
a group of answers to one question gives rewards to the wrong tokens.
"""

from __future__ import annotations

from agentcore_verify.invariants import assert_whole, both_modes
from agentcore_verify.results import NotExercised
from agentcore_verify.subject import Subject

PATCHES = ("token-ids",)


def check(subject: Subject) -> str:
    both_modes(subject, "plain", n=2)
    both_modes(subject, "emoji", n=2)
    apart = True
    for stream in (False, True):
        reply = subject.ask("plain", n=3, temperature=1.0, logprobs=True, stream=stream)
        assert_whole(subject, reply)
        apart &= len({reply.ids(choice) for choice in range(3)}) > 1
    if not apart:
        raise NotExercised(
            "All sampled choices were the same, so that none could be taken for another."
        )
    return "2 greedy and 3 sampled choices, each with its own IDs"
