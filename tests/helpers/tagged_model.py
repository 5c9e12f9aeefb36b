"""Makes a scripted model whose tokenizer has each tag of tool calls as one token.

Renderers of real models insist on such tags, and render prompts of their own. The model
therefore learns its answers to prompts that a renderer has made.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

from agentcore_verify.scripted_model import END, THINK_TAGS, make_tokenizer, train

TAGS = (
    *THINK_TAGS,
    *("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"),
)


@cache
def _tokenizer() -> Any:
    return make_tokenizer(TAGS)


def make(
    folder: Path, prompts: Sequence[Sequence[int]], answers: Sequence[str]
) -> Path:
    pairs = [
        ([*prompt], _tokenizer().encode(answer + END, add_special_tokens=False))
        for prompt, answer in zip(prompts, answers, strict=True)
    ]
    # On a busy machine, spinning threads make this much slower.
    torch.set_num_threads(1)
    train(_tokenizer(), pairs, folder)
    return _without_unknown(folder)


def write_tokenizer(folder: Path) -> Path:
    """Write the tokenizer alone, with which a client can render prompts."""
    _tokenizer().save_pretrained(folder)
    return _without_unknown(folder)


def _without_unknown(folder: Path) -> Path:
    """State that no token is the unknown one; Transformers 5 would take the end token.

    It reads Qwen2's class of tokenizer from the configuration of the model.
    """
    file = folder / "tokenizer_config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps({**config, "unk_token": None}))
    return folder
