"""Bad requests get an HTTP 400 that names the field, and the server keeps running.

`input_ids` that are empty, negative, too large, too many or not a list of integers get a
400 that names `input_ids`, with and without streaming; so do `return_prompt_token_ids`
and `return_meta_info` with `stream: true`. If not, one bad rollout crashes the server (a
negative ID on a GPU), or a trainer waits for fields that never come.
"""

from __future__ import annotations

from typing import Any

from agentcore_verify.invariants import assert_same
from agentcore_verify.subject import Subject

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


def check(subject: Subject) -> str:
    expected = subject.reference("plain")
    cases = dict(BAD)
    longest = subject.info.get("max_req_input_len")
    if longest and not subject.info.get("allow_auto_truncate"):
        cases["too long"] = list(expected.prompt_ids[:1]) * (longest + 1)
    n_refused = 0
    for field in ("return_prompt_token_ids", "return_meta_info"):
        body = subject.body("plain", stream=True, **{field: True})
        subject.assert_refused(body, f"streaming with {field}", field, "stream")
        n_refused += 1
    for what, ids in cases.items():
        for stream in (False, True):
            body = subject.body("plain", input_ids=ids, stream=stream)
            mode = "streaming" if stream else "non-streaming"
            where = f"{mode} with input_ids that are {what}"
            subject.assert_refused(body, where, "input_ids")
            n_refused += 1
        assert_same(subject, expected, subject.ask("plain"))
    return f"{n_refused} bad requests rejected; the server keeps running"
