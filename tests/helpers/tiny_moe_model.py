"""Makes a Qwen3-MoE of three layers with random weights, and says how it routes."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

LAYERS = 3
TOP_K = 2
FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


def make(scripted_model: Path, folder: Path, n_experts: int) -> Path:
    """Write the model; its tokens are those of the scripted model."""
    import torch
    from transformers import AutoConfig, Qwen3MoeConfig, Qwen3MoeForCausalLM

    spoken: Any = AutoConfig.from_pretrained(scripted_model)
    config = Qwen3MoeConfig(
        vocab_size=spoken.vocab_size,
        hidden_size=64,
        intermediate_size=64,
        moe_intermediate_size=16,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        num_experts=n_experts,
        num_experts_per_tok=TOP_K,
        norm_topk_prob=True,
        max_position_embeddings=4096,
        bos_token_id=None,
        eos_token_id=spoken.eos_token_id,
        tie_word_embeddings=False,
    )
    torch.manual_seed(7)
    model = Qwen3MoeForCausalLM(config).float()
    with torch.no_grad():
        for parameter in model.parameters():
            # Far enough apart that greedy decoding does not depend on the batch.
            parameter.normal_(0, 0.3) if parameter.dim() > 1 else None
    model.save_pretrained(folder)
    for name in FILES:
        if (scripted_model / name).exists():
            shutil.copy(scripted_model / name, folder)
    return folder


@cache
def _model(folder: Path) -> Any:
    from transformers import Qwen3MoeForCausalLM

    return Qwen3MoeForCausalLM.from_pretrained(folder).float().eval()


def routes(folder: Path, token_ids: Sequence[int]) -> np.ndarray[Any, Any]:
    """Return the experts of each token in each layer, as computed by Transformers."""
    import torch

    with torch.no_grad():
        output = _model(folder)(torch.tensor([token_ids]), output_router_logits=True)
    logits = torch.stack(output.router_logits, dim=1)
    experts: np.ndarray[Any, Any] = torch.topk(logits, TOP_K).indices.numpy()
    experts.sort()
    return experts
