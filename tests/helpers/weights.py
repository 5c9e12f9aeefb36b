"""Other weights for the scripted model, and what they say."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

MUTE_TOKEN = 0
"""The only token that the mute weights say."""

Tensors = dict[str, torch.Tensor]


def mute(tensors: Tensors) -> None:
    """All logits are zero, so that greedy decoding takes the first token."""
    tensors["model.norm.weight"].zero_()


def changed(tensors: Tensors) -> None:
    """Other keys and values, and so other logprobs."""
    for name, tensor in tensors.items():
        if "v_proj.weight" in name or "k_proj.weight" in name:
            tensor.mul_(1.3)


def make(model: Path, folder: Path, change: Callable[[Tensors], None]) -> Path:
    """A copy of a model with other weights."""
    shutil.copytree(model, folder)
    file = folder / "model.safetensors"
    tensors = load_file(file)
    change(tensors)
    file.unlink()
    save_file(tensors, file, metadata={"format": "pt"})
    return folder
