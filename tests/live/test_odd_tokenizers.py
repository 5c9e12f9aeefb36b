"""Servers without a tokenizer or an EOS token reject the requests that need one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from agentcore_patches.patches.releases import is_between
from agentcore_verify import client
from agentcore_verify.probe import MIRROR_KEY
from agentcore_verify.scripted_model import line
from agentcore_verify.server import Server
from tests.helpers import weights
from tests.helpers.endpoints import (
    CHAT,
    COMPLETIONS,
    VLLM_GENERATE,
    answers,
    ids_in,
    refused,
    send,
)
from tests.helpers.servers import Launch, Trees, streams_new_ids

PARAMS = {"max_new_tokens": 5, "temperature": 0}
IDS = {"return_token_ids": True}


def assert_serves(server: Server) -> None:
    body = {"input_ids": [5, 6, 7], "sampling_params": PARAMS}
    assert len(send(server, "/generate", **body).json()["output_ids"]) == 5


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
        for name, value in (("min_new_tokens", 2), ("stop", "a"), ("stop_regex", "a")):
            with refused(f"{name} needs a tokenizer"):
                params = {**PARAMS, name: value}
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
    assert_serves(without_tokenizer)


def assert_in_step(output: dict[str, Any]) -> None:
    """Check the values of the sampler, which mirrors each sampled ID."""
    assert output["meta_info"][MIRROR_KEY] == output["output_ids"]


def test_token_ids_and_values_of_a_sampler_need_no_tokenizer(
    without_tokenizer: Server,
) -> None:
    incremental = streams_new_ids(without_tokenizer)
    url = f"{without_tokenizer.base_url}/generate"
    for length in (7, 50, 120, 333):
        params = {"max_new_tokens": length, "temperature": 0, "ignore_eos": True}
        given: dict[str, Any] = {"input_ids": [5, 6, 7], "sampling_params": params}
        output = client.post_json(url, {**given, "return_prompt_token_ids": True})
        assert output["prompt_token_ids"] == [5, 6, 7]
        assert_in_step(output)
        ids: list[int] = []
        for chunk in client.post_stream(url, given):
            assert_in_step(chunk)
            ids = (ids if incremental else []) + chunk["output_ids"]
            assert len(ids) == chunk["meta_info"]["completion_tokens"]
        assert ids == output["output_ids"] and len(ids) == length
    params = {"max_tokens": length, "ignore_eos": True, "temperature": 0, "logprobs": 0}
    for streaming in (False, True):
        given = {"token_ids": [5, 6, 7], "sampling_params": params}
        events = answers(without_tokenizer, VLLM_GENERATE, streaming, **given)
        assert ids_in(events) == ids
        n_logprobs = [
            len(choice["logprobs"]["content"])
            for event in events
            for choice in event["choices"]
        ]
        assert sum(n_logprobs) == length


def test_a_tokenizer_without_an_eos_token(
    trees: Trees, launch: Launch, scripted_model: Path, tmp_path: Path, release: str
) -> None:
    without = "eos_token", "eos_token_id"
    model = weights.without(scripted_model, tmp_path / "endless", *without)
    status = 400 if is_between(release, "", "0.5.16") else 200
    chat = {"messages": [{"role": "user", "content": "Name many things."}]}
    params = {**PARAMS, "min_new_tokens": 2}
    # The grammars of some releases need an EOS token to start at all.
    with launch(trees.patched, "--grammar-backend", "none", model=model) as server:
        for path, body in (
            (CHAT, {**chat, "max_tokens": 5, "min_tokens": 2, **IDS}),
            ("/generate", {"input_ids": [5], "sampling_params": params}),
        ):
            response = send(server, path, **body)
            assert response.status_code == status, response.text
            assert status == 200 or "needs an EOS token" in response.text
        assert_serves(server)


@pytest.mark.parametrize("args", [(), ("--enable-tokenizer-batch-encode",)])
def test_a_completion_without_the_tokens_that_a_tokenizer_adds(
    trees: Trees,
    launch: Launch,
    scripted_model: Path,
    tmp_path: Path,
    args: tuple[str, ...],
) -> None:
    model = weights.without(scripted_model, tmp_path / "model")
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.post_processor = TemplateProcessing(
        single="<|im_start|> $A", special_tokens=[("<|im_start|>", 1)]
    )
    (model / "tokenizer.json").unlink()
    tokenizer.save(str(model / "tokenizer.json"))
    body = {"model": "m", "max_tokens": 2, "echo": True, **IDS}

    def prompts(streaming: bool, **more: Any) -> dict[int, list[int]]:
        return {
            choice["index"]: choice["prompt_token_ids"]
            for answer in answers(server, COMPLETIONS, streaming, **body, **more)
            for choice in answer["choices"]
            if choice.get("prompt_token_ids")
        }

    with launch(trees.patched, *args, model=model) as server:
        for prompt in ("Say hello.", ["Say hello.", "Hello"]):
            for streaming in (False, True):
                added = prompts(streaming, prompt=prompt)
                bare = prompts(streaming, prompt=prompt, add_special_tokens=False)
                assert added == {index: [1, *ids] for index, ids in bare.items()}
                assert len(added) == (1 if isinstance(prompt, str) else 2)
        several = prompts(False, prompt=prompt, n=2)
        assert several == {index: added[index // 2] for index in range(4)}
