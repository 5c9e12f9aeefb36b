"""Exact token IDs for RL trainers from an installed SGLang."""

from __future__ import annotations

from agentcore_patches._version import __version__
from agentcore_patches.api import apply, apply_patch, revert, status

__all__ = ["__version__", "apply", "apply_patch", "revert", "status"]
