"""The check of images, on correct and incorrect answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from agentcore_verify.checks import images
from agentcore_verify.client import Json, OnEvent, read_events, read_response
from agentcore_verify.results import Failed, Skipped
from agentcore_verify.subject import Exchange, Subject

PROMPT = [5, 90, 90, 6]
SAID = [7, 8]


class Model(Subject):
    """A model that answers the same to every image."""

    prefilled: list[int] | None = None
    takes_images = True
    n_streamed_logprobs = len(SAID)

    def get(self, path: str, timeout: float = 30) -> Any:
        assert path == "/model_info"
        return SimpleNamespace(
            status_code=200,
            json=lambda: {"has_image_understanding": self.takes_images},
        )

    def send(self, body: Json, where: str, on_event: OnEvent | None = None) -> Exchange:
        [message] = body["messages"]
        assert [part["type"] for part in message["content"]] == ["image_url", "text"]
        prompt = body.get("input_ids", PROMPT)
        if "input_ids" in body and self.prefilled is not None:
            prompt = self.prefilled
        logprob = {"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}
        n_logprobs = self.n_streamed_logprobs if body.get("stream") else len(SAID)
        choice = {
            "index": 0,
            "finish_reason": "length",
            "token_ids": SAID,
            "logprobs": {"content": [logprob] * n_logprobs},
        }
        usage = {"prompt_tokens": len(prompt), "completion_tokens": len(SAID)}
        said = {"role": "assistant", "content": "aa"}
        choices = [{**choice, "delta": said, "message": said}]
        answer = {"prompt_token_ids": prompt, "usage": usage, "choices": choices}
        read = read_events([answer]) if body.get("stream") else read_response(answer)
        return Exchange(where, body, read)


def model(**values: Any) -> Model:
    made = Model("http://127.0.0.1:1")
    for name, value in values.items():
        setattr(made, name, value)
    return made


def test_a_second_turn_that_is_prefilled_as_given_passes() -> None:
    assert images.images(model()) == "a prompt of 4 tokens; a second turn of 6"


def test_a_second_turn_that_is_prefilled_with_other_ids_fails() -> None:
    with pytest.raises(Failed, match="differ from the input_ids") as failed:
        images.images(model(can_decode=False, prefilled=[5, 90, 90, 90, 90, 6, 7, 8]))
    assert failed.value.difference is not None


def test_a_chunk_that_lacks_a_logprob_fails() -> None:
    with pytest.raises(Failed, match="chunk 0 has 2 token_ids but 1 logprobs"):
        images.images(model(n_streamed_logprobs=1))


def test_a_text_model_is_skipped() -> None:
    with pytest.raises(Skipped, match="does not support images"):
        images.images(model(takes_images=False))
