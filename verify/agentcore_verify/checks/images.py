"""A prompt with an image is returned as prefilled, and can start a second turn.

In the second turn of a conversation with images, the model must see the token IDs that it
saw and sampled, each image expanded once. If not, the logprobs of the second turn belong
to another prompt than the recorded one. Skipped if the model does not support images.
"""

from __future__ import annotations

from typing import Any

from agentcore_verify.checks.registry import check
from agentcore_verify.client import Json
from agentcore_verify.invariants import (
    assert_input_ids,
    assert_logprobs_aligned,
    assert_same,
)
from agentcore_verify.results import Skipped
from agentcore_verify.subject import Exchange, Subject

IMAGE = (
    "data:image/png;base64,"
    "iVBORw0KGgoAAAANSUhEUgAAADgAAAA4CAIAAAAn5KxJAAAARElEQVR42u3OQQkAAAgEsItiVKMaxYcp"
    "hMECLNXzQkRFRUVFRUVFRUVFRUVFRUVFRUVFRUVFRUVFRUVFRUVFRUVFRc8CXFdhD2S6+AsAAAAASUVO"
    "RK5CYII="
)
"""A PNG of 56 x 56 pixels."""

MAX_TOKENS = 24


@check()
def images(subject: Subject) -> str:
    if not subject.json_at("/model_info").get("has_image_understanding"):
        raise Skipped("The model does not support images.")
    first = _ask(subject, "an image")
    streamed = _ask(subject, "an image, streamed", stream=True)
    assert_same(subject, first, streamed)
    assert_logprobs_aligned(streamed, streamed.completions[0])
    past = [*first.prompt_ids, *first.ids()]
    for stream in (False, True):
        where = "a second turn of token IDs and the image"
        second = _ask(subject, where, input_ids=past, stream=stream)
        assert_input_ids(subject, second)
    return f"a prompt of {len(first.prompt_ids)} tokens; a second turn of {len(past)}"


def _ask(subject: Subject, where: str, **more: Any) -> Exchange:
    content = [
        {"type": "image_url", "image_url": {"url": IMAGE}},
        {"type": "text", "text": "What is this?"},
    ]
    body: Json = subject.body("plain", logprobs=True, top_logprobs=2, **more)
    body["messages"] = [{"role": "user", "content": content}]
    body["max_tokens"] = MAX_TOKENS
    return subject.send(body, where)
