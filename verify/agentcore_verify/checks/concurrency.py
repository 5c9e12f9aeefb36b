"""Each of 24 concurrent streams gets the token IDs and logprobs of its own answer.

Under load the engine's outputs queue up. Each stream still has the IDs of its own
prompt, and IDs that decode to its own text, none lost. If not, rollouts are mixed up or
incomplete, and only under load.
"""

from __future__ import annotations

from agentcore_verify.invariants import assert_same, assert_whole
from agentcore_verify.parallel import in_parallel
from agentcore_verify.results import Failed
from agentcore_verify.subject import Exchange, Subject

RULES = (9,)

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
    requests = [
        (question, tools)
        for question, tools in REQUESTS
        if subject.is_patched or not tools
    ]
    alone = [subject.reference(question, tools=tools) for question, tools in requests]

    def stream(number: int) -> Exchange:
        question, tools = requests[number % len(requests)]
        return subject.stream(question, tools=tools, logprobs=True)

    n_other = 0
    for number, reply in enumerate(in_parallel(stream, range(N_STREAMS))):
        expected = alone[number % len(requests)]
        if reply.answer.prompt_token_ids != expected.answer.prompt_token_ids:
            raise Failed(
                f"{reply.where}, one of {N_STREAMS} streams: prompt_token_ids are those "
                "of another request."
            )
        if reply.completions[0].content == expected.completions[0].content:
            assert_same(subject, expected, reply)
        assert_whole(subject, reply)
        n_other += reply.ids() != expected.ids()
    if n_other:
        # Rounding differs between batch sizes, so greedy decoding may differ too.
        return f"{N_STREAMS} streams; {n_other} answered differently than alone"
    return f"{N_STREAMS} streams, each with the same IDs as alone"
