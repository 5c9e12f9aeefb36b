"""Makes a Qwen2-VL of two layers with random weights, and its real processor.

Run in an interpreter with SGLang:

    PYTHON tiny_vision_model.py SCRIPTED_MODEL FOLDER
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ARGUMENTS = ("--mm-attention-backend", "sdpa", "--context-length", "4096")
ENVIRONMENT = {"SGLANG_DISABLE_CUDNN_CHECK": "1"}
"""For a server of the model. What the check reads is slow on a GPU, unused on a CPU."""

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.content is string %}{{ message.content }}{% else %}"
    "{% for part in message.content %}"
    "{% if part.type == 'text' %}{{ part.text }}"
    "{% else %}<|vision_start|><|image_pad|><|vision_end|>{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
VISION_TOKENS = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")


def run(python: Path, scripted_model: Path, folder: Path) -> Path:
    """Make the model in an interpreter with SGLang; return its folder."""
    subprocess.run([python, __file__, scripted_model, folder], check=True)
    return folder


def make(scripted_model: Path, folder: Path) -> None:
    """Write the model; its text tokens are those of the scripted model."""
    import torch
    from transformers import (
        Qwen2TokenizerFast,
        Qwen2VLConfig,
        Qwen2VLForConditionalGeneration,
        Qwen2VLImageProcessorFast,
        Qwen2VLProcessor,
        Qwen2VLVideoProcessor,
    )

    tokenizer: Any = Qwen2TokenizerFast.from_pretrained(scripted_model)
    tokenizer.add_special_tokens({"additional_special_tokens": [*VISION_TOKENS]})
    start, end, image, video = tokenizer.convert_tokens_to_ids([*VISION_TOKENS])
    pixels = {"min_pixels": 4 * 28 * 28, "max_pixels": 16 * 28 * 28}
    Qwen2VLProcessor(
        image_processor=Qwen2VLImageProcessorFast(**pixels),
        tokenizer=tokenizer,
        video_processor=Qwen2VLVideoProcessor(**pixels),
        chat_template=TEMPLATE,
    ).save_pretrained(folder)
    text = {
        "vocab_size": len(tokenizer),
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 4096,
        "rope_theta": 10000.0,
        "rope_scaling": {"type": "mrope", "mrope_section": [4, 6, 6]},
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        "tie_word_embeddings": False,
    }
    config = Qwen2VLConfig(
        **text,
        vision_config={
            "depth": 2,
            "in_chans": 3,
            "embed_dim": 64,
            "hidden_size": 128,
            "num_heads": 4,
            "mlp_ratio": 2,
            "patch_size": 14,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
        },
        vision_start_token_id=start,
        vision_end_token_id=end,
        image_token_id=image,
        video_token_id=video,
    )
    torch.manual_seed(7)
    model = Qwen2VLForConditionalGeneration(config).float()
    with torch.no_grad():
        for parameter in model.parameters():
            # Far enough apart that greedy decoding does not depend on the batch.
            parameter.normal_(0, 0.15) if parameter.dim() > 1 else None
    model.save_pretrained(folder)
    # As in the released models, text settings are at the top level.
    path = folder / "config.json"
    written = json.loads(path.read_text())
    flat = {**written.pop("text_config"), **written}
    flat["architectures"] = ["Qwen2VLForConditionalGeneration"]
    path.write_text(json.dumps(flat))


if __name__ == "__main__":
    make(Path(sys.argv[1]), Path(sys.argv[2]))
