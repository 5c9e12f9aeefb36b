"""Servers without a tokenizer or an EOS token reject the requests that need one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from agentcore_patches.patches.releases import is_between
from agentcore_verify.server import Server
from tests.helpers import weights
from tests.helpers.endpoints import CHAT, COMPLETIONS, answers, send
from tests.helpers.servers import Launch, Trees

PARAMS = {"max_new_tokens": 5, "temperature": 0}
IDS = {"return_token_ids": True}


def assert_serves(server: Server) -> None:
    body = {"input_ids": [5, 6, 7], "sampling_params": PARAMS}
    assert len(send(server, "/generate", **body).json()["output_ids"]) == 5


def test_a_server_without_a_tokenizer(trees: Trees, launch: Launch) -> None:
    with launch(trees.patched, "--skip-tokenizer-init") as server:
        for name, value in (("min_new_tokens", 2), ("stop", "a"), ("stop_regex", "a")):
            for streaming in (False, True):
                params = {**PARAMS, name: value}
                body = {"input_ids": [5, 6, 7], "sampling_params": params}
                response = send(server, "/generate", **body, stream=streaming)
                assert response.status_code == 400
                assert f"{name} needs a tokenizer" in response.text
        assert_serves(server)


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
    body = {"model": "m", "max_tokens": 2, "echo": True, **IDS}

    def prompts(streaming: bool, **more: Any) -> dict[int, list[int]]:
        return {
            choice["index"]: choice["prompt_token_ids"]
            for answer in answers(server, COMPLETIONS, streaming, **body, **more)
            for choice in answer["choices"]
            if choice.get("prompt_token_ids")
        }

    with launch(trees.patched, model=model) as server:
        for prompt in ("Say hello.", ["Say hello.", "Hello"]):
            for streaming in (False, True):
                added = prompts(streaming, prompt=prompt)
                bare = prompts(streaming, prompt=prompt, add_special_tokens=False)
                assert added == {index: [1, *ids] for index, ids in bare.items()}
                assert len(added) == (1 if isinstance(prompt, str) else 2)
