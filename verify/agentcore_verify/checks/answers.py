"""Checks of the token IDs of plain answers, streamed or not."""

from __future__ import annotations

from agentcore_verify.checks.registry import check
from agentcore_verify.invariants import assert_whole, both_modes
from agentcore_verify.results import NotExercised
from agentcore_verify.subject import Subject

QUESTIONS = ("plain", "emoji", "silent", "second_turn_ada", "second_turn_bob", "long")

LENGTHS = (1, 2, 9, 60)
"""`max_tokens` of further answers; some end in the middle of a character."""


@check(through_router=True)
def determinism(subject: Subject) -> str:
    """The engine is deterministic: two identical requests get the same answer.

    The checks that compare answers need this: if two identical requests get different
    answers, they are inconclusive. For a trainer, a rollout then cannot be repeated;
    the patches have no influence on this.
    """
    questions = ("plain", "emoji", "long")
    for question in questions:
        subject.reference(question)
    return f"{len(questions)} answers repeated; logprobs within {subject.noise:.1g}"


@check(1, 2, 3)
def non_streaming(subject: Subject) -> str:
    """A non-streaming answer has the token IDs of its prompt and of each choice.

    `prompt_token_ids` of the response decode to the prompt, `choices[i].token_ids` to
    the text of the choice; there are as many as `usage` counts, including the stop
    token. If not, a trainer learns other tokens than the model generated.
    """
    n_tokens = 0
    for question in QUESTIONS:
        reply = subject.ask(question)
        assert_whole(subject, reply)
        n_tokens += len(reply.ids())
    return f"{n_tokens} tokens of {len(QUESTIONS)} answers decode to their text"


@check(1, 2, 3, 5)
def streaming(subject: Subject) -> str:
    """A stream has its prompt's IDs once, and each new token ID with its text or before it.

    `prompt_token_ids` are on the first chunk and no other. The `token_ids` of all
    chunks, joined, decode to the joined text, and no chunk has text whose IDs come
    later. If not, a trainer that cuts rollouts at chunks assigns tokens to the wrong
    step.
    """
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


@check(1, 2, 3, 4, 5, through_router=True)
def same_ids(subject: Subject) -> str:
    """Streaming and non-streaming answers have the same prompt and completion IDs.

    The `token_ids` of all chunks, joined, equal those of the non-streaming answer, up
    to the stop token or `max_tokens`. If not, tokens were lost, repeated or swapped,
    and a trainer computes its loss on a sequence that the model never sampled.
    """
    answers = [both_modes(subject, question)[0] for question in QUESTIONS]
    answers += [both_modes(subject, "emoji", max_tokens=n)[0] for n in LENGTHS]
    n_tokens = sum(len(answer.ids()) for answer in answers)
    equal = "equal in both modes" if subject.profile.streams else "whole"
    return f"{n_tokens} tokens of {len(answers)} answers are {equal}"


@check(4, 5)
def held_back_text(subject: Subject) -> str:
    """Token IDs are sent even while their text is held back, as for half of an emoji.

    A token that is only a part of a character has no text until the character is
    complete. Its ID is sent with the next chunk of its choice, at the latest with
    finish_reason. If not, the IDs that a trainer gets have a hole at every emoji or
    Chinese character.
    """
    n_parts = 0
    for question in ("emoji", "cjk"):
        whole, _ = both_modes(subject, question)
        texts = subject.decode_all([[value] for value in whole.ids()])
        n_parts += sum("\ufffd" in text for text in texts)
    if not n_parts:
        raise NotExercised(
            "No answer has a token that is a part of a character.",
            advice="The model answered without emoji, or has one token for each.",
        )
    return f"{n_parts} tokens that are a part of a character"
