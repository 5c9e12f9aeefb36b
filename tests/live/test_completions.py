"""`/v1/completions` with token IDs: equal with and without streaming, in all modes."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from tokenizers import Tokenizer

from agentcore_patches.patches.releases import is_between
from agentcore_verify.scripted_model import STOP_WORD, line
from agentcore_verify.server import Server
from tests.helpers.asking import LOGPROB_NOISE
from tests.helpers.endpoints import COMPLETIONS, Json, answers, post, refused, stream
from tests.helpers.servers import held_requests, in_one_mode


def templated(name: str) -> str:
    """Return the prompt that the chat template makes of a line without a history."""
    return f"<|im_start|>user\n{line(name).question}<|im_end|>\n<|im_start|>assistant\n"


LONG = f"Here they are: {STOP_WORD}"

REQUESTS: dict[str, Json] = {
    "no logprobs": {"prompt": templated("emoji")},
    "logprobs": {"prompt": templated("emoji"), "logprobs": 2},
    "logprobs: true": {"prompt": templated("cjk"), "logprobs": True},
    "logprobs: 0": {"prompt": templated("cjk"), "logprobs": 0},
    "IDs": {"prompt": [5, 6, 7], "logprobs": 1, "max_tokens": 20},
    "n = 2": {"prompt": templated("emoji"), "n": 2, "logprobs": 1},
    "several prompts": {
        "prompt": [templated("emoji"), templated("plain"), LONG],
        "logprobs": 1,
        "max_tokens": 80,
    },
    "several prompts of IDs, n = 2": {
        "prompt": [[5, 6, 7], [8, 9]],
        "n": 2,
        "logprobs": 1,
        "max_tokens": 20,
    },
    "echo": {"prompt": [templated("plain"), LONG], "echo": True, "max_tokens": 30},
    "echo with logprobs": {"prompt": templated("emoji"), "echo": True, "logprobs": 2},
    "echo with logprobs: 0": {
        "prompt": [templated("emoji"), LONG],
        "echo": True,
        "logprobs": 0,
    },
    "a stop string": {"prompt": templated("long"), "stop": STOP_WORD, "logprobs": 1},
}


def body_of(name: str, **more: Any) -> Json:
    return {
        "max_tokens": 700,
        "temperature": 0,
        "return_token_ids": True,
        **REQUESTS[name],
        **more,
    }


def prompts(body: Json, tokenizer: Tokenizer) -> list[list[int]]:
    prompt = body["prompt"]
    if isinstance(prompt, str) or isinstance(prompt[0], int):
        prompt = [prompt]
    return [
        tokenizer.encode(one).ids if isinstance(one, str) else one
        for one in prompt
        for _ in range(body.get("n", 1))
    ]


def n_echoed(body: Json, choice: Json) -> int:
    """Count the prompt's logprobs before those of the completion."""
    echoes = body.get("echo") and body.get("logprobs") is not None
    return len(choice["prompt_token_ids"]) if echoes else 0


@pytest.mark.parametrize("name", REQUESTS)
def test_a_non_streaming_response_has_the_ids_with_their_logprobs(
    server: Server, tokenizer: Tokenizer, release: str, name: str
) -> None:
    body = body_of(name)
    answer = post(server, COMPLETIONS, **body)
    choices = answer["choices"]
    assert [choice["prompt_token_ids"] for choice in choices] == prompts(
        body, tokenizer
    )
    n_generated = sum(len(choice["token_ids"]) for choice in choices)
    assert n_generated == answer["usage"]["completion_tokens"]
    for choice in choices:
        ids = choice["token_ids"]
        text = choice["text"]
        if body.get("echo"):
            text = text[len(tokenizer.decode(choice["prompt_token_ids"], False)) :]
        assert tokenizer.decode(ids).startswith(text)
        if "logprobs" in body:
            tokens = [tokenizer.decode([token_id], False) for token_id in ids]
            told = choice["logprobs"]["tokens"][n_echoed(body, choice) :]
            if is_between(release, "0.5.21", ""):
                # A part of a character is given as its bytes, in Latin-1.
                spelled = b"".join(
                    one.encode("latin-1" if "\ufffd" in token else "utf-8")
                    for one, token in zip(told, tokens, strict=True)
                )
                assert spelled.decode(errors="replace") == tokenizer.decode(ids, False)
            else:
                assert told == tokens


@pytest.mark.parametrize("name", REQUESTS)
def test_a_stream_equals_a_non_streaming_response(server: Server, name: str) -> None:
    body = body_of(name)
    whole = post(server, COMPLETIONS, **body)
    token_ids: dict[int, list[int]] = defaultdict(list)
    tokens: dict[int, list[str]] = defaultdict(list)
    logprobs: dict[int, list[float]] = defaultdict(list)
    top_logprobs: dict[int, list[Json]] = defaultdict(list)
    seen: dict[int, list[int]] = {}
    for event in stream(server, COMPLETIONS, **body):
        for choice in event["choices"]:
            index = choice["index"]
            assert ("prompt_token_ids" in choice) is (index not in seen)
            n_expected = len(choice.get("token_ids", ()))
            if index not in seen:
                seen[index] = choice["prompt_token_ids"]
                n_expected += n_echoed(body, choice)
            token_ids[index] += choice.get("token_ids", [])
            if "logprobs" in body:
                given = choice["logprobs"] or {"tokens": []}
                assert len(given["tokens"]) == n_expected
                if given["tokens"]:
                    tokens[index] += given["tokens"]
                    logprobs[index] += given["token_logprobs"]
                    top_logprobs[index] += given["top_logprobs"]
    for choice in whole["choices"]:
        index = choice["index"]
        assert seen[index] == choice["prompt_token_ids"]
        assert token_ids[index] == choice["token_ids"]
        if "logprobs" in body:
            assert tokens[index] == choice["logprobs"]["tokens"]
            assert logprobs[index] == pytest.approx(
                choice["logprobs"]["token_logprobs"], abs=LOGPROB_NOISE
            )
            assert len(top_logprobs[index]) == len(choice["logprobs"]["top_logprobs"])


@pytest.mark.parametrize("streaming", [False, True])
def test_several_samples_of_a_prompt_leave_no_request(
    server: Server, streaming: bool
) -> None:
    body = body_of("several prompts of IDs, n = 2")
    answers(server, COMPLETIONS, streaming, **body)
    assert held_requests(server) == []


@in_one_mode
@pytest.mark.parametrize("field", ["return_token_ids", "return_tokens_as_token_ids"])
def test_a_flag_of_another_type_is_refused_by_name(server: Server, field: str) -> None:
    with refused(field):
        post(server, COMPLETIONS, prompt="x", **{field: [1]})
