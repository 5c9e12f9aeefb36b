"""Chunks of text by a template: the same as those that are made of structs."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcore_patches.grafts import chunk_template
from agentcore_patches.grafts.chat_token_trace import ChatTokenTrace
from agentcore_patches.grafts.chunk_template import _fill_template, _keep_template

PROMPT = [101, 102]


@dataclass(slots=True)
class Delta:
    content: str
    reasoning_content: str | None = None


@dataclass(slots=True)
class Choice:
    index: int
    delta: Delta
    logprobs: Any = None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None


@dataclass(slots=True)
class Chunk:
    created: int
    model: str
    choices: list[Choice]
    prompt_token_ids: list[int] | None = None
    metadata: dict[str, Any] | None = None


class Encoder:
    """Leaves out of a chunk what it does not say, as SGLang's structs do."""

    @staticmethod
    def encode(value: Any) -> bytes:
        if isinstance(value, Chunk):
            value = asdict(value)
            for part in (value, *value["choices"]):
                for name in ("token_ids", "prompt_token_ids", "metadata"):
                    if part.get(name) is None:
                        part.pop(name, None)
        return json.dumps(value, separators=(",", ":")).encode()


@pytest.fixture(autouse=True)
def _encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_template, "_stream_encoder", Encoder, raising=False)


class Server:
    """Delivers tokens to a trace, and makes chunks of text as SGLang does."""

    def __init__(self, trace: ChatTokenTrace, model: str = "m") -> None:
        self.trace = trace
        self.model = model
        self.n_filled = 0

    def push(self, index: int, *token_ids: int, **meta_info: Any) -> None:
        content = {"prompt_token_ids": PROMPT, "output_ids": token_ids}
        self.trace.push(index, {**content, "meta_info": meta_info})

    def send(self, index: int, text: str, created: int = 1) -> dict[str, Any]:
        line = _fill_template(self.trace, created, index, text)
        if line is not None:
            self.n_filled += 1
        else:
            chunk = Chunk(created, self.model, [Choice(index, Delta(text))])
            self.trace.stamp(chunk)
            _keep_template(self.trace, chunk)
            line = f"data: {Encoder.encode(chunk).decode()}\n\n"
        assert line.startswith("data: ")
        assert line.endswith("\n\n")
        sent: dict[str, Any] = json.loads(line.removeprefix("data: "))
        return sent


@pytest.mark.parametrize(
    "model", ["m", "%s %b {}", '"content":"a"', '"token_ids":[0],"logprobs":null']
)
@given(texts=st.lists(st.text(min_size=1), min_size=3))
def test_a_template_gives_what_the_structs_give(model: str, texts: list[str]) -> None:
    server = Server(ChatTokenTrace(True), model)
    for position, text in enumerate(texts):
        server.push(0, position, 7)
        chunk = server.send(0, text)
        assert chunk.pop("prompt_token_ids", None) == (None if position else PROMPT)
        assert chunk == {
            "created": 1,
            "model": model,
            "choices": [
                {
                    "index": 0,
                    "delta": {"content": text, "reasoning_content": None},
                    "logprobs": None,
                    "token_ids": [position, 7],
                }
            ],
        }
    # The first has the prompt, and of the second the template is made.
    assert server.n_filled == len(texts) - 2


def test_a_template_has_the_logprobs_of_its_tokens() -> None:
    def build(answer: dict[str, Any]) -> Any:
        logprob = answer["meta_info"]["output_token_logprobs"][0][0]
        return SimpleNamespace(
            content=[SimpleNamespace(logprob=logprob, top_logprobs=[])],
            model_dump=lambda: dumped(logprob),
        )

    def dumped(logprob: float) -> dict[str, Any]:
        return {"content": [{"logprob": logprob, "top_logprobs": []}]}

    server = Server(ChatTokenTrace(True, build, incremental_logprobs=True))
    for position in range(4):
        server.push(0, position, output_token_logprobs=[(-float(position), 0, "")])
        sent = server.send(0, "a")["choices"][0]
        assert sent["logprobs"] == dumped(-float(position))
    assert server.n_filled == 2
    server.push(0, 4)
    with pytest.raises(ValueError, match="0 logprobs for the 1 tokens 4 to 4"):
        server.send(0, "a")


def test_a_template_is_not_used_for_a_chunk_that_says_more_or_less() -> None:
    """Another second or choice, no new tokens, other weights."""
    server = Server(ChatTokenTrace(True, choice_prompts=True))
    for _ in range(3):
        server.push(0, 1)
        server.send(0, "a")
    assert server.n_filled == 1
    server.push(0, 1)
    assert server.send(0, "a", created=2)["created"] == 2
    server.push(1, 1)
    assert server.send(1, "a", created=2)["choices"][0]["prompt_token_ids"] == PROMPT
    assert "token_ids" not in server.send(0, "a", created=2)["choices"][0]
    server.push(0, 1, weight_version="2")
    assert server.send(0, "a", created=2)["metadata"] == {"weight_version": "2"}
    assert server.n_filled == 1
    server.push(0, 1, weight_version="2")
    assert "metadata" not in server.send(0, "a", created=2)
    assert server.n_filled == 2


def test_no_template_is_made_of_structs_in_another_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = Server(ChatTokenTrace(True))
    server.push(0, 1)
    chunk = Chunk(1, "m", [Choice(0, Delta("a"))])
    server.trace.stamp(chunk)
    chunk.prompt_token_ids = None
    order = ["index", "token_ids", "logprobs", "delta"]
    part = asdict(chunk)["choices"][0]
    encoded = Encoder.encode({"choices": [{name: part[name] for name in order}]})

    class Other(Encoder):
        @staticmethod
        def encode(value: Any) -> bytes:
            return encoded if isinstance(value, Chunk) else Encoder.encode(value)

    monkeypatch.setattr(chunk_template, "_stream_encoder", Other)
    _keep_template(server.trace, chunk)
    assert not server.trace.templates
