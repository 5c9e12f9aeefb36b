"""Exact token IDs for RL trainers from an installed SGLang."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentcore_patches._version import __version__

if TYPE_CHECKING:
    from agentcore_patches.api import apply, apply_patch, revert, status

__all__ = ["__version__", "apply", "apply_patch", "revert", "status"]


def __getattr__(name: str) -> Any:
    """Import a function when it is used: the command must start before it imports."""
    if name in __all__:
        from agentcore_patches import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
