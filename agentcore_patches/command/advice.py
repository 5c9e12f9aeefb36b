"""The advice in messages: commands for the SGLang at hand, and the name that was meant."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from agentcore_patches.errors import PROGRAM, UsageError

_ADVISED = re.compile(rf"`{PROGRAM} (apply|status|revert|verify)\b[^`]*(?=`)")


def with_target(text: str, target: Mapping[str, str]) -> str:
    """A text in which every command that it advises has the user's target.

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


def refuse_unknown(
    names: Sequence[str], known: Sequence[str], one: str, many: str
) -> None:
    """Raise UsageError unless all names are known; `one` and `many` say of what.

    The error says which name was probably meant.
    """
    unknown = [name for name in names if name not in known]
    if not unknown:
        return
    import difflib

    spelled = unknown[0].lower().replace("_", "-")
    close = difflib.get_close_matches(spelled, known, n=1)
    meant = f"Did you mean {close[0]}? " if close else ""
    raise UsageError(
        f"There is no {one} named {', '.join(unknown)}. {meant}The {many} are "
        f"{', '.join(known)}."
    )
