"""What is ours in an SGLang: comments in its files, and files that it does not have."""

from __future__ import annotations

import re

from agentcore_patches.patches import registry

COMMENT_START = b"# agentcore-patch: "
"""How every comment that a patch adds begins."""

LANDED = "srt/agentcore/"
"""The folder, below the package, of the modules that SGLang itself does not have."""

# What earlier versions of this package patched. An install may still be patched by one,
# whatever has left `registry.WRITING_ORDER` since.
_FORMER = frozenset(
    {
        "srt/entrypoints/anthropic/protocol.py",
        "srt/entrypoints/anthropic/serving.py",
        "srt/entrypoints/http_server.py",
        "srt/entrypoints/openai/chat_encoding_adapters.py",
        "srt/entrypoints/openai/protocol.py",
        "srt/entrypoints/openai/serving_base.py",
        "srt/entrypoints/openai/serving_chat.py",
        "srt/entrypoints/openai/serving_completions.py",
        "srt/entrypoints/openai/serving_deepseek_recipe.py",
        "srt/entrypoints/openai/serving_inkling.py",
        "srt/entrypoints/openai/sse_utils.py",
        "srt/entrypoints/openai/utils.py",
        "srt/managers/io_struct.py",
        "srt/managers/multi_tokenizer_mixin.py",
        "srt/managers/schedule_batch.py",
        "srt/managers/scheduler.py",
        "srt/managers/scheduler_components/batch_result_processor.py",
        "srt/managers/scheduler_components/output_sender.py",
        "srt/managers/scheduler_components/output_streamer.py",
        "srt/managers/scheduler_output_processor_mixin.py",
        "srt/managers/tokenizer_manager.py",
        "srt/multimodal/processors/base_processor.py",
        "srt/utils/request_logger.py",
    }
)

_MODULE = re.compile(r"srt(/\w+)+\.py", re.ASCII)


def is_created(path: str) -> bool:
    """Whether a path below the package is that of a file which SGLang does not have."""
    return path.startswith(LANDED)


def is_ours(path: str, text: bytes) -> bool:
    """Whether a text holds something of ours; all of a file that we created is."""
    return is_created(path) or COMMENT_START in text


def may_be_patched(path: str) -> bool:
    """Whether a path below the package is one that patches may change or create."""
    known = is_created(path) or path in registry.WRITING_ORDER or path in _FORMER
    return known and _MODULE.fullmatch(path) is not None
