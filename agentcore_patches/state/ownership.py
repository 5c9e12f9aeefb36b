"""Recognize agentcore-patch's comments in SGLang's files, and the files it adds."""

from __future__ import annotations

import re

from agentcore_patches.patches import registry
from agentcore_patches.patches.paths import LANDING

COMMENT_START = b"# agentcore-patch: "
"""Start of every comment that a patch adds."""

_MODULE = re.compile(r"srt(/\w+)+\.py", re.ASCII)


def is_created(path: str) -> bool:
    """True for files that only the patched tree has."""
    return path.startswith(f"{LANDING}/")


def is_ours(path: str, text: bytes) -> bool:
    """True if a file has a patch's comment, or if patches add the whole file."""
    return is_created(path) or COMMENT_START in text


def may_be_patched(path: str) -> bool:
    """True for files that patches change or create, now or in earlier versions."""
    known = is_created(path) or path in registry.EVER_PATCHED
    return known and _MODULE.fullmatch(path) is not None
