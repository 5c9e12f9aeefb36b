"""Servers without a tokenizer, and with one that adds tokens to each prompt."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from agentcore_verify import client
from agentcore_verify.probe import MIRROR_KEY
from agentcore_verify.scripted_model import line
from agentcore_verify.server import Server
from tests.helpers import weights
from tests.helpers.endpoints import (
    CHAT,
    COMPLETIONS,
    VLLM_GENERATE,
    Json,
    answers,
    ids_in,
    refused,
)
from tests.helpers.servers import Launch, Trees, streams_new_ids

PARAMS = {"max_new_tokens": 5, "temperature": 0}
IDS = {"return_token_ids": True}
BATCH_ENCODE = "--enable-tokenizer-batch-encode"


@pytest.fixture(
    scope="module", params=[(), ("--stream-output",)], ids=["default", "output"]
)
def without_tokenizer(
    request: pytest.FixtureRequest, trees: Trees, launch: Launch
) -> Iterator[Server]:
    with launch(trees.patched, "--skip-tokenizer-init", *request.param) as running:
        yield running


def test_fields_that_need_a_tokenizer_are_refused_without_one(
    without_tokenizer: Server,
) -> None:
    messages = line("plain").messages
    for streaming in (False, True):
        with refused("min_new_tokens needs a tokenizer"):
            params = {**PARAMS, "min_new_tokens": 2}
            given = {"input_ids": [5, 6, 7], "sampling_params": params}
            answers(without_tokenizer, "/generate", streaming, **given)
        with refused("--skip-tokenizer-init"):
            text = {"token_ids": [5], "sampling_params": {}, "output_mode": "text"}
            answers(without_tokenizer, VLLM_GENERATE, streaming, **text)
        with refused("--skip-tokenizer-init", "/generate"):
            given = {"messages": messages, "input_ids": [5, 6, 7]}
            answers(without_tokenizer, CHAT, streaming, **given)
    with refused("--skip-tokenizer-init"):
        answers(without_tokenizer, f"{CHAT}/render", False, messages=messages)


def test_token_ids_and_values_of_a_sampler_need_no_tokenizer(
    without_tokenizer: Server,
) -> None:
    incremental = streams_new_ids(without_tokenizer)
    url = f"{without_tokenizer.base_url}/generate"
    params: Json = {"max_new_tokens": 333, "temperature": 0, "ignore_eos": True}
    given: Json = {"input_ids": [5, 6, 7], "sampling_params": params}
    output = client.post_json(url, {**given, "return_prompt_token_ids": True})
    assert output["prompt_token_ids"] == [5, 6, 7]
    ids: list[int] = []
    for chunk in (*client.post_stream(url, given), output):
        # The sampler mirrors each sampled ID.
        assert chunk["meta_info"][MIRROR_KEY] == chunk["output_ids"]
        if chunk is not output:
            ids = (ids if incremental else []) + chunk["output_ids"]
            assert len(ids) == chunk["meta_info"]["completion_tokens"]
    assert ids == output["output_ids"] and len(ids) == 333
    params = {"max_tokens": 333, "ignore_eos": True, "temperature": 0, "logprobs": 0}
    for streaming in (False, True):
        given = {"token_ids": [5, 6, 7], "sampling_params": params}
        events = answers(without_tokenizer, VLLM_GENERATE, streaming, **given)
        assert ids_in(events) == ids
        choices = [choice for event in events for choice in event["choices"]]
        assert sum(len(one["logprobs"]["content"]) for one in choices) == 333


def test_a_completion_without_the_tokens_that_a_tokenizer_adds(
    trees: Trees, launch: Launch, scripted_model: Path, tmp_path: Path
) -> None:
    model = weights.without(scripted_model, tmp_path / "model")
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.post_processor = TemplateProcessing(
        single="<|im_start|> $A", special_tokens=[("<|im_start|>", 1)]
    )
    (model / "tokenizer.json").unlink()
    tokenizer.save(str(model / "tokenizer.json"))
    body = {"max_tokens": 2, "echo": True, "n": 2, **IDS}

    def prompts(streaming: bool, **more: Any) -> dict[int, list[int]]:
        return {
            choice["index"]: choice["prompt_token_ids"]
            for answer in answers(server, COMPLETIONS, streaming, **body, **more)
            for choice in answer["choices"]
            if choice.get("prompt_token_ids")
        }

    with launch(trees.patched, BATCH_ENCODE, model=model) as server:
        for streaming, texts in product((False, True), (["Hello"], ["Say", "Hello"])):
            prompt = texts if len(texts) > 1 else texts[0]
            added = prompts(streaming, prompt=prompt)
            bare = prompts(streaming, prompt=prompt, add_special_tokens=False)
            assert added == {index: [1, *ids] for index, ids in bare.items()}
            assert len(added) == 2 * len(texts)
