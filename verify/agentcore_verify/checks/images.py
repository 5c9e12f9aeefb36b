"""An image's prompt comes back as it was prefilled, and a second turn may begin with it.

In a conversation with images the model must see, as its past, the token IDs that it saw
and sampled, each image expanded once. If not, the logprobs of the second turn are those
of another prompt than the one that is recorded. Skipped where the model takes no images.
"""

from __future__ import annotations

from typing import Any

import requests

from agentcore_verify.client import Json
from agentcore_verify.invariants import assert_same
from agentcore_verify.results import Failed, Skipped
from agentcore_verify.subject import Reply, Subject

PATCHES = ("token-ids", "tito")

IMAGE = (
    "data:image/png;base64,"
    "iVBORw0KGgoAAAANSUhEUgAAADgAAAA4CAIAAAAn5KxJAAAARElEQVR42u3OQQkAAAgEsItiVKMaxYcp"
    "hMECLNXzQkRFRUVFRUVFRUVFRUVFRUVFRUVFRUVFRUVFRUVFRUVFRUVFRc8CXFdhD2S6+AsAAAAASUVO"
    "RK5CYII="
)
"""A PNG of 56 x 56 pixels."""

MAX_TOKENS = 24


def check(subject: Subject) -> str:
    if not _takes_images(subject):
        raise Skipped("The model takes no images.")
    first = _ask(subject, "an image")
    streamed = _ask(subject, "an image, streamed", stream=True)
    assert_same(subject, first, streamed)
    for piece in streamed.completions[0].pieces:
        if len(piece.logprobs or ()) != len(piece.token_ids or ()):
            raise Failed(f"{streamed.where}: a chunk's logprobs are not in step.")
    past = [*first.prompt_ids, *first.ids()]
    for stream in (False, True):
        where = "a second turn of token IDs and the image"
        second = _ask(subject, where, input_ids=past, stream=stream)
        if [*second.prompt_ids] != past:
            raise Failed(
                f"{where}: prefilled were {len(second.prompt_ids)} token IDs, which are "
                f"not the {len(past)} of the request."
            )
    return f"a prompt of {len(first.prompt_ids)} tokens; a second turn of {len(past)}"


def _takes_images(subject: Subject) -> bool:
    try:
        info = subject.get("/model_info").json()
    except (requests.RequestException, ValueError):
        return False
    return bool(isinstance(info, dict) and info.get("has_image_understanding"))


def _ask(subject: Subject, where: str, **more: Any) -> Reply:
    content = [
        {"type": "image_url", "image_url": {"url": IMAGE}},
        {"type": "text", "text": "What is this?"},
    ]
    body: Json = subject.body("plain", logprobs=True, top_logprobs=2, **more)
    body["messages"] = [{"role": "user", "content": content}]
    body["max_tokens"] = MAX_TOKENS
    return subject.send(body, where)
