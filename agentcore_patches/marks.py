"""What is ours in an SGLang: comments in its files, and files that it does not have."""

from __future__ import annotations

COMMENT_START = b"# agentcore-patch: "
"""How every comment that a patch adds begins."""

LANDED = "srt/agentcore/"
"""The folder, below the package, of the modules that SGLang itself does not have."""


def is_created(path: str) -> bool:
    """Whether a path below the package is that of a file which SGLang does not have."""
    return path.startswith(LANDED)


def is_ours(path: str, text: bytes) -> bool:
    """Whether a text holds something of ours; all of a file that we created is."""
    return is_created(path) or COMMENT_START in text
