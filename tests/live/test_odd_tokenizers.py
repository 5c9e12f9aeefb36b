"""Servers without a tokenizer or an EOS token reject the requests that need one."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from agentcore_patches.patches.releases import is_between
from tests.helpers import weights
from tests.helpers.endpoints import CHAT, COMPLETIONS, answers, send
from tests.helpers.servers import Launch, Trees

PARAMS = {"max_new_tokens": 5, "temperature": 0}


@pytest.fixture(scope="module")
def endless_model(
    scripted_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The scripted model, without an EOS token anywhere."""
    folder = tmp_path_factory.mktemp("endless") / "model"
    return weights.without(scripted_model, folder, "eos_token", "eos_token_id")


def test_a_server_without_a_tokenizer(trees: Trees, launch: Launch) -> None:
    with launch(trees.patched, "--skip-tokenizer-init") as server:
        for name, value in (("min_new_tokens", 2), ("stop", "a"), ("stop_regex", "a")):
            for streaming in (False, True):
                params = {**PARAMS, name: value}
                body = {"input_ids": [5, 6, 7], "sampling_params": params}
                response = send(server, "/generate", **body, stream=streaming)
                assert response.status_code == 400
                assert f"{name} needs a tokenizer" in response.text
        body = {"input_ids": [5, 6, 7], "sampling_params": PARAMS}
        assert len(send(server, "/generate", **body).json()["output_ids"]) == 5


def test_a_tokenizer_without_an_eos_token(
    trees: Trees, launch: Launch, endless_model: Path, release: str
) -> None:
    status = 400 if is_between(release, "", "0.5.16") else 200
    chat = {"messages": [{"role": "user", "content": "Name many things."}]}
    # The grammars of some releases need an EOS token to start at all.
    args = ("--grammar-backend", "none")
    with launch(trees.patched, *args, model=endless_model) as server:
        for path, body in (
            (
                CHAT,
                {**chat, "max_tokens": 5, "min_tokens": 2, "return_token_ids": True},
            ),
            (
                "/generate",
                {"input_ids": [5], "sampling_params": {**PARAMS, "min_new_tokens": 2}},
            ),
        ):
            response = send(server, path, **body)
            assert response.status_code == status, response.text
            assert status == 200 or "needs an EOS token" in response.text
        body = {"input_ids": [5, 6, 7], "sampling_params": PARAMS}
        assert len(send(server, "/generate", **body).json()["output_ids"]) == 5


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
    body = {"model": "m", "max_tokens": 2, "return_token_ids": True, "echo": True}
    with launch(trees.patched, model=model) as server:
        for prompt in ("Say hello.", ["Say hello.", "Hello"]):
            for streaming in (False, True):
                added, bare = (
                    {
                        choice["index"]: choice["prompt_token_ids"]
                        for answer in answers(
                            server,
                            COMPLETIONS,
                            streaming,
                            prompt=prompt,
                            **body,
                            **more,
                        )
                        for choice in answer["choices"]
                        if choice.get("prompt_token_ids")
                    }
                    for more in ({}, {"add_special_tokens": False})
                )
                assert added == {index: [1, *ids] for index, ids in bare.items()}
                assert len(added) == (1 if isinstance(prompt, str) else 2)
