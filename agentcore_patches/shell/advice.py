"""Commands in messages, completed for the SGLang at hand."""

from __future__ import annotations

import re
from collections.abc import Mapping

from agentcore_patches.errors import PROGRAM

_ADVISED = re.compile(rf"`{PROGRAM} (apply|status|revert|verify|serve)\b[^`]*(?=`)")


def with_target(text: str, target: Mapping[str, str]) -> str:
    """Add the user's target to every command that a text advises.

    `target` has the options that name the SGLang, with their values.
    """
    if not target:
        return text
    import shlex

    def completed(advised: re.Match[str]) -> str:
        command = advised[0]
        if command.endswith("--help"):
            return command
        for option, value in target.items():
            on_one_node = advised[1] not in ("apply", "status")
            refused = on_one_node or "--unlisted" in command or "--diff" in command
            if option not in command and not (option == "--ray" and refused):
                command += f" {option} {shlex.quote(value)}"
        return command

    return _ADVISED.sub(completed, text)
