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
from tests.helpers.endpoints import CHAT, COMPLETIONS, Json, post, refused, stream
from tests.helpers.servers import held_requests, in_one_mode


def templated(name: str) -> str:
    """Return the prompt that the chat template makes of a line without a history."""
    return f"<|im_start|>user\n{line(name).question}<|im_end|>\n<|im_start|>assistant\n"


LONG = f"Here they are: {STOP_WORD}"
EMOJI, CJK, PLAIN = map(templated, ("emoji", "cjk", "plain"))
TWO = [[5, 6, 7], [8, 9]]

REQUESTS: dict[str, Json] = {
    "no logprobs": {"prompt": EMOJI},
    "logprobs": {"prompt": EMOJI, "logprobs": 2},
    "logprobs: true": {"prompt": CJK, "logprobs": True},
    "logprobs: 0": {"prompt": CJK, "logprobs": 0},
    "IDs": {"prompt": [5, 6, 7], "logprobs": 1, "max_tokens": 20},
    "several prompts": {"prompt": [EMOJI, PLAIN, LONG], "logprobs": 1},
    "several prompts of IDs, n = 2": {"prompt": TWO, "n": 2, "logprobs": 1},
    "echo": {"prompt": [PLAIN, LONG], "echo": True, "max_tokens": 30},
    "echo with logprobs": {"prompt": EMOJI, "echo": True, "logprobs": 2},
    "echo with logprobs: 0": {"prompt": [EMOJI, LONG], "echo": True, "logprobs": 0},
    "a stop string": {"prompt": templated("long"), "stop": STOP_WORD, "logprobs": 1},
}


def body_of(name: str) -> Json:
    most = 80 if name.startswith("several") else 700
    options = {"max_tokens": most, "temperature": 0, "return_token_ids": True}
    return {**options, **REQUESTS[name]}


def prompts(body: Json, tokenizer: Tokenizer) -> list[list[int]]:
    prompt = body["prompt"]
    if isinstance(prompt, str) or isinstance(prompt[0], int):
        prompt = [prompt]
    return [
        tokenizer.encode(one).ids if isinstance(one, str) else one
        for one in prompt
        for _ in range(body.get("n", 1))
    ]


LOGPROBS = ("tokens", "token_logprobs", "top_logprobs")


def n_echoed(body: Json, choice: Json) -> int:
    """Count the prompt's logprobs before those of the completion."""
    echoes = body.get("echo") and body.get("logprobs") is not None
    return len(choice["prompt_token_ids"]) if echoes else 0


@pytest.mark.parametrize("name", REQUESTS)
def test_a_completion_has_the_ids_with_their_logprobs_and_so_has_its_stream(
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
        assert_decodes(choice, body, tokenizer, release)
    joined: dict[int, dict[str, list[Any]]] = {}
    for event in stream(server, COMPLETIONS, **body):
        for choice in event["choices"]:
            n_expected = len(choice.get("token_ids", ()))
            is_first = choice["index"] not in joined
            assert ("prompt_token_ids" in choice) is is_first
            found = joined.setdefault(choice["index"], defaultdict(list))
            if is_first:
                n_expected += n_echoed(body, choice)
                found["prompt_token_ids"] = choice["prompt_token_ids"]
            found["token_ids"] += choice.get("token_ids", [])
            if "logprobs" in body:
                given = choice["logprobs"] or {}
                assert len(given.get("tokens", ())) == n_expected
                for key in LOGPROBS if n_expected else ():
                    found[key] += given[key]
    for choice in choices:
        found = joined[choice["index"]]
        assert found["prompt_token_ids"] == choice["prompt_token_ids"]
        assert found["token_ids"] == choice["token_ids"]
        if "logprobs" in body:
            tokens, values, tops = (choice["logprobs"][key] for key in LOGPROBS)
            assert found["tokens"] == tokens
            assert found["token_logprobs"] == pytest.approx(values, abs=LOGPROB_NOISE)
            assert len(found["top_logprobs"]) == len(tops)
    assert held_requests(server) == []


def assert_decodes(
    choice: Json, body: Json, tokenizer: Tokenizer, release: str
) -> None:
    """Check that a choice's IDs are those of its text and of its logprobs."""
    ids, text = choice["token_ids"], choice["text"]
    if body.get("echo"):
        text = text[len(tokenizer.decode(choice["prompt_token_ids"], False)) :]
    assert tokenizer.decode(ids).startswith(text)
    # From 0.5.21 on, a part of a character is given as its bytes, in Latin-1.
    if "logprobs" in body and is_between(release, "", "0.5.20"):
        tokens = [tokenizer.decode([token_id], False) for token_id in ids]
        assert choice["logprobs"]["tokens"][n_echoed(body, choice) :] == tokens


@in_one_mode
def test_a_flag_of_another_type_is_refused(server: Server) -> None:
    prompt = {"prompt": "x", "messages": line("plain").messages}
    flags = "token_ids", "token_logprobs", "tokens_as_token_ids", "weight_versions"
    for path in (CHAT, COMPLETIONS):
        for flag in (*flags, *(["meta_info"] if path == CHAT else [])):
            with refused(f"return_{flag}"):
                post(server, path, **prompt, **{f"return_{flag}": [1]})
