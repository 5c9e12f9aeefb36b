"""The checks.

A check is a function with the decorator `check`. It returns in a few words what it saw,
or raises one of the exceptions of `results`. Its docstring, or that of its module, is a
summary in one line, then what must hold, and what a failure means for a trainer.
"""

from __future__ import annotations

from importlib import import_module

from .registry import CHECKS, Check

_MODULES = (
    *("answers", "logprobs", "special_requests", "tito", "prefix", "customized_info"),
    *("other_clients", "load", "pauses", "weight_versions", "vllm_api", "images"),
    # Last: a server that does not reject bad requests may crash.
    *("openai_client", "refusals"),
)
"""The modules, in the order in which their checks are run."""

for _module in _MODULES:
    import_module(f"{__name__}.{_module}")

NAMES = tuple(CHECKS)
"""The names of all checks, in the order of running."""

get = CHECKS.__getitem__

__all__ = ["NAMES", "Check", "get"]
