"""Bad requests get an HTTP 400 that names the field, and the server keeps running.

`input_ids` that are empty, negative, too large, too many or not a list of integers get a
400 that names `input_ids`, with and without streaming; so do `return_prompt_token_ids`
and `return_meta_info` with `stream: true`. If not, one bad rollout crashes the server (a
negative ID on a GPU), or a trainer waits for fields that never come.
"""

from __future__ import annotations

from typing import Any

from agentcore_verify.checks.registry import check
from agentcore_verify.invariants import assert_same
from agentcore_verify.results import Failed, NotExercised, Skipped
from agentcore_verify.scoring import request, score
from agentcore_verify.subject import Subject, mode_of

BAD: dict[str, Any] = {
    "a string": "Say hello.",
    "strings": ["1", "2"],
    "nested": [[1, 2]],
    "empty": [],
    "beyond 64 bits": [2**70],
    "beyond the vocabulary": [2**31 - 1],
    "negative": [1, -1],
}
"""The last ones crash an unpatched server."""


@check(16)
def refusals(subject: Subject) -> str:
    if not subject.is_patched:
        return _check_prompts_of_ids(subject)
    expected = subject.reference("plain")
    cases = dict(BAD)
    longest = subject.info.get("max_req_input_len")
    if longest and not subject.info.get("allow_auto_truncate"):
        cases["too long"] = list(expected.prompt_ids[:1]) * (longest + 1)
    n_refused = 0
    for what, ids in cases.items():
        for stream in (False, True):
            body = subject.body("plain", input_ids=ids, stream=stream)
            where = f"{mode_of(body)} with input_ids that are {what}"
            subject.assert_refused(body, where, "input_ids")
            n_refused += 1
        assert_same(subject, expected, subject.ask("plain"))
    # A gateway may drop these fields.
    fields = (
        () if subject.is_routed else ("return_prompt_token_ids", "return_meta_info")
    )
    for field in fields:
        body = subject.body("plain", stream=True, **{field: True})
        subject.assert_refused(body, f"streaming with {field}", field, "stream")
        n_refused += 1
    return f"{n_refused} bad requests rejected; the server keeps running"


def _check_prompts_of_ids(subject: Subject) -> str:
    path = subject.profile.scores
    good = request(subject, (5, 6, 7), 1, 0)
    if not subject.sends_bad_ids:
        raise NotExercised(
            "A server that does not refuse bad IDs may crash, so none were sent.",
            advice="`--level token-in` sends them.",
        )
    expected = score(subject, (5, 6, 7))
    [field] = good.keys() & {"input_ids", "prompt"}
    cases = {what: BAD[what] for what in ("empty", "beyond the vocabulary", "negative")}
    if longest := subject.longest_prompt():
        cases = {"too many": [5] * (longest + 1), **cases}
    for what, ids in cases.items():
        where = f"{path} with IDs that are {what}"
        subject.assert_refused({**good, field: ids}, where, path=path)
    try:
        again = score(subject, (5, 6, 7))
    except Skipped as error:
        raise Failed(f"After the bad IDs, a good request fails: {error}") from error
    if (again.prompt, again.tokens) != (expected.prompt, expected.tokens):
        raise Failed("After the bad IDs, a request gets another answer than before.")
    return f"{len(cases)} bad prompts rejected; the server keeps running"
