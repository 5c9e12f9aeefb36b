"""Tests of SGLang's own processor of Qwen2-VL, patched.

Run like `in_sglang`. Its arguments are the folder of the tiny vision model and an image's
URL, which cannot be imported here: `agentcore_verify` needs libcst.
"""

from __future__ import annotations

import asyncio
import sys
from functools import cache
from types import SimpleNamespace
from typing import Any

from tests.live.in_sglang import run_tests, server_args

PLACE = "<|vision_start|><|image_pad|><|vision_end|>"


@cache
def processor() -> Any:
    from sglang.srt.multimodal.processors import base_processor
    from sglang.srt.multimodal.processors.qwen_vl import QwenVLImageProcessor
    from transformers import AutoConfig, AutoProcessor

    made = server_args(mm_process_config={})
    base_processor.get_global_server_args = lambda: made
    return QwenVLImageProcessor(
        AutoConfig.from_pretrained(sys.argv[1]),
        made,
        AutoProcessor.from_pretrained(sys.argv[1], use_fast=True),
        "default",
    )


def processed(prompt: str | list[int], image: dict[str, Any] | None = None) -> Any:
    """Return the token IDs that the scheduler gets, and the places of the images."""
    request = SimpleNamespace(video_data=None, audio_data=None, rid="r")
    made = asyncio.run(
        processor().process_mm_data_async(
            image_data=[image or sys.argv[2]], input_text=prompt, request_obj=request
        )
    )
    # A dict in v0.5.9, an object from v0.5.10 on.
    said = SimpleNamespace(**made) if isinstance(made, dict) else made
    return said.input_ids, [item.offsets for item in said.mm_items]


def processed_image() -> dict[str, Any]:
    """Return the image as sent by a client that runs Qwen2-VL's processor itself."""
    from sglang.srt.utils import load_image

    image, _ = load_image(sys.argv[2])
    made = processor()._processor.image_processor(images=[image], return_tensors="pt")
    return {"format": "processor_output", **made}


def test_a_preprocessed_image_needs_its_placeholder_too() -> None:
    expanded, places = processed(f"What is {PLACE} this?")
    assert processed(expanded, image=processed_image()) == (expanded, places)
    pad = processor().mm_tokens.image_token_id
    without = [token_id for token_id in expanded if token_id != pad]
    try:
        processed(without, image=processed_image())
    except ValueError as error:
        assert "no placeholder for the images" in str(error)
    else:
        raise AssertionError("the prompt was accepted")


if __name__ == "__main__":
    run_tests(globals())
