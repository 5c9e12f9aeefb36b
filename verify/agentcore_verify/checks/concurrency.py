"""24 streams at once: each gets the IDs and logprobs of its own answer.

Whatever else the server is doing, each stream has its own prompt's IDs, and IDs that
decode to its own text; under load the engine's outputs queue up, and none may be lost
or land in another stream. If not, rollouts mix, and only under load.
"""

from __future__ import annotations

from agentcore_verify.at_once import at_once
from agentcore_verify.invariants import assert_same, assert_whole
from agentcore_verify.results import Failed
from agentcore_verify.subject import Reply, Subject

PATCHES = ("token-ids",)

N_STREAMS = 24

REQUESTS = (
    ("plain", False),
    ("emoji", False),
    ("cjk", False),
    ("long", False),
    ("second_turn_ada", False),
    ("second_turn_bob", False),
    ("tool", True),
    ("text_then_tool", True),
)


def check(subject: Subject) -> str:
    alone = [subject.reference(question, tools=tools) for question, tools in REQUESTS]

    def stream(number: int) -> Reply:
        question, tools = REQUESTS[number % len(REQUESTS)]
        return subject.stream(question, tools=tools, logprobs=True)

    n_other = 0
    for number, reply in enumerate(at_once(stream, range(N_STREAMS))):
        expected = alone[number % len(REQUESTS)]
        if reply.prompt_ids != expected.prompt_ids:
            raise Failed(
                f"{reply.where}, one of {N_STREAMS} at once: another's prompt."
            )
        if reply.completions[0].content == expected.completions[0].content:
            assert_same(subject, expected, reply)
        assert_whole(subject, reply)
        n_other += reply.ids() != expected.ids()
    if n_other:
        # In a batch an engine may round otherwise and so say something else.
        return f"{N_STREAMS} streams; {n_other} said other things than alone"
    return f"{N_STREAMS} streams with the IDs that each has alone"
