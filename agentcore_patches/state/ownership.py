"""What is ours in an SGLang: comments in its files, and files that it does not have."""

from __future__ import annotations

import re

from agentcore_patches.patches import registry
from agentcore_patches.patches.paths import LANDING

COMMENT_START = b"# agentcore-patch: "
"""How every comment that a patch adds begins."""

_MODULE = re.compile(r"srt(/\w+)+\.py", re.ASCII)


def is_created(path: str) -> bool:
    """Whether a path below the package is that of a file which SGLang does not have."""
    return path.startswith(f"{LANDING}/")


def is_ours(path: str, text: bytes) -> bool:
    """Whether a text holds something of ours; all of a file that we created is."""
    return is_created(path) or COMMENT_START in text


def may_be_patched(path: str) -> bool:
    """Whether patches change or create the file at a path below the package, or did."""
    known = is_created(path) or path in registry.EVER_PATCHED
    return known and _MODULE.fullmatch(path) is not None
