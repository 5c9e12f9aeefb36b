"""Copies of the scripted model with other weights or less configuration."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

MUTE_TOKEN = 0
"""The only token that the mute weights say."""

Tensors = dict[str, torch.Tensor]


def mute(tensors: Tensors) -> None:
    """Set all logits to zero, so that greedy decoding takes the first token."""
    tensors["model.norm.weight"].zero_()


def changed(tensors: Tensors) -> None:
    """Change the keys and values, and so the logprobs."""
    for name, tensor in tensors.items():
        if "v_proj.weight" in name or "k_proj.weight" in name:
            tensor.mul_(1.3)


def without(model: Path, folder: Path, *keys: str) -> Path:
    """Copy a model without these keys in its configuration files."""
    shutil.copytree(model, folder)
    for file in folder.glob("*.json"):
        config = json.loads(file.read_text())
        if config.keys() & {*keys}:
            kept = {key: value for key, value in config.items() if key not in keys}
            file.write_text(json.dumps(kept))
    return folder


def make(model: Path, folder: Path, change: Callable[[Tensors], None]) -> Path:
    shutil.copytree(model, folder)
    file = folder / "model.safetensors"
    tensors = load_file(file)
    change(tensors)
    file.unlink()
    save_file(tensors, file, metadata={"format": "pt"})
    return folder


RANK = 4
"""Of the adapters."""

ADAPTED = {"q_proj": (128, 128), "v_proj": (128, 64)}
"""The weights that change: inputs and outputs."""


def make_adapter(folder: Path, seed: int) -> Path:
    """Write a LoRA adapter with random weights for the scripted model."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, (n_in, n_out) in ADAPTED.items():
        prefix = f"base_model.model.model.layers.0.self_attn.{name}"
        for part, shape in (("A", (RANK, n_in)), ("B", (n_out, RANK))):
            weight = torch.randn(shape, generator=generator, dtype=torch.float32)
            tensors[f"{prefix}.lora_{part}.weight"] = weight.to(torch.bfloat16)
    folder.mkdir(exist_ok=True)
    save_file(tensors, folder / "adapter_model.safetensors")
    config = {
        "peft_type": "LORA",
        "base_model_name_or_path": "scripted",
        "r": RANK,
        "lora_alpha": RANK,
        "target_modules": [*ADAPTED],
    }
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder
