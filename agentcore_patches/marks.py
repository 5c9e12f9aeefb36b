"""What is ours in an SGLang: comments in its files, and files that it does not have."""

from __future__ import annotations

import re

from agentcore_patches.patches import registry
from agentcore_patches.patches.files import LANDING

COMMENT_START = b"# agentcore-patch: "
"""How every comment that a patch adds begins."""

# What only earlier versions of this package patched. An install may still be patched by
# one of them.
_FORMER = (
    "srt/entrypoints/openai/chat_encoding_adapters.py",
    "srt/entrypoints/openai/serving_deepseek_recipe.py",
    "srt/entrypoints/openai/serving_inkling.py",
    "srt/entrypoints/openai/sse_utils.py",
)

_MODULE = re.compile(r"srt(/\w+)+\.py", re.ASCII)


def is_created(path: str) -> bool:
    """Whether a path below the package is that of a file which SGLang does not have."""
    return path.startswith(f"{LANDING}/")


def is_ours(path: str, text: bytes) -> bool:
    """Whether a text holds something of ours; all of a file that we created is."""
    return is_created(path) or COMMENT_START in text


def may_be_patched(path: str) -> bool:
    """Whether a path below the package is one that patches may change or create."""
    known = is_created(path) or path in registry.WRITING_ORDER or path in _FORMER
    return known and _MODULE.fullmatch(path) is not None
