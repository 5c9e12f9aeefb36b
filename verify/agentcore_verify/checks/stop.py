"""Stop strings, stop tokens and max_tokens end the token IDs where generation ended.

In both modes the IDs are the first ones of the answer without that limit. They include
the stop token and the tokens of the stop string, which the text does not. If not, a
trainer never sees the token with which the model should learn to stop.
"""

from __future__ import annotations

import re
from typing import Any

from agentcore_verify.invariants import assert_first, both_modes
from agentcore_verify.results import Failed, NotExercised
from agentcore_verify.subject import Exchange, Subject

RULES = (7,)

QUESTION = "plain"


def check(subject: Subject) -> str:
    full = subject.reference(QUESTION)
    [completion] = full.completions
    # A reasoning model may only have thought so far.
    word = _word(completion.reasoning_content + completion.content)
    middle = len(full.ids()) // 2
    token = full.ids()[middle]
    n_to_token = full.ids().index(token) + 1

    _assert_cut(subject, full, "stop", None, stop=word)
    if subject.is_patched:
        _assert_cut(subject, full, "stop", None, stop=[word], no_stop_trim=True)
    if subject.profile.has_stop_tokens:
        _assert_cut(subject, full, "stop", n_to_token, stop_token_ids=[token])
    _assert_cut(subject, full, "length", middle, max_tokens=middle)
    return f"stop string {word!r}, a stop token and max_tokens"


def _word(text: str) -> str:
    words = re.findall(r"[A-Za-z]{3,}", text)
    for word in map(str, words[len(words) // 2 :]):
        if text.find(word) >= len(text) // 3:
            return word
    raise NotExercised(f"The answer {text!r} has no word to use as a stop string.")


def _assert_cut(
    subject: Subject, full: Exchange, finish: str, n_ids: int | None, **options: Any
) -> None:
    """Check that both modes give the first IDs of the full answer, `n_ids` if given."""
    for reply in both_modes(subject, QUESTION, **options):
        what = f"{reply.where} with {options}"
        ids = reply.ids()
        assert_first(subject, what, ids, full)
        if len(ids) == len(full.ids()):
            raise Failed(f"{what}: the answer is not cut.")
        if reply.completions[0].finish_reason != finish:
            raise Failed(
                f"{what}: finish_reason is {reply.completions[0].finish_reason!r} "
                f"instead of {finish!r}."
            )
        if n_ids not in (None, len(ids)):
            raise Failed(f"{what}: {len(ids)} token_ids instead of {n_ids}.")
