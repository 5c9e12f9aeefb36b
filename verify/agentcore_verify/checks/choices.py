"""With n > 1 each choice has its own token IDs, with and without streaming.

Two choices of greedy decoding are equal in both modes. Of three sampled choices, which
differ, the IDs of each decode to the text of that choice. If not, a trainer that samples
a group of answers per question assigns rewards to the wrong tokens.
"""

from __future__ import annotations

from agentcore_verify.invariants import assert_whole, both_modes
from agentcore_verify.results import NotExercised
from agentcore_verify.subject import Subject

RULES = (6,)


def check(subject: Subject) -> str:
    if subject.is_patched:  # vLLM refuses n > 1 with greedy decoding.
        both_modes(subject, "plain", n=2)
        both_modes(subject, "emoji", n=2)
    all_differ = True
    for stream in subject.profile.modes.values():
        # So long that equal answers are not a coincidence.
        asked = {"n": 3, "temperature": 1.0, "logprobs": True, "stream": stream}
        with subject.unless_refused("n > 1"):
            reply = subject.ask("long", **asked)
        assert_whole(subject, reply)
        all_differ &= len({reply.ids(choice) for choice in range(3)}) > 1
    if not all_differ:
        raise NotExercised(
            "All sampled choices are equal, so mixed-up choices could not be noticed."
        )
    return "sampled choices, each with its own IDs"
