"""Request fields that are true unless a request says false.

For agents that cannot ask, and for routers that drop what they do not know.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from . import logprobs, release

if TYPE_CHECKING:
    from sglang.srt.managers.io_struct import EmbeddingReqInput, GenerateReqInput
    from sglang.srt.managers.tokenizer_manager import TokenizerManager

VARIABLE = "AGENTCORE_DEFAULTS"

# A chat stream is refused that asks for these.
_NOT_IN_STREAMS = ("return_prompt_token_ids", "return_meta_info")


@cache
def names() -> tuple[str, ...]:
    """The fields that the environment names.

    Raises:
        ValueError: one of them is no boolean request field of the patches in place.
    """
    text = os.environ.get(VARIABLE, "")
    named = tuple(name for part in text.split(",") if (name := part.strip()))
    known = release.REQUEST_FLAGS
    for name in named:
        if name not in known:
            fields = f"those are {', '.join(known)}" if known else "they have none"
            raise ValueError(
                f"{VARIABLE} names {name!r}, which is no boolean request field of the "
                f"patches that are in place: {fields}. Correct or unset it."
            )
    return named


def fill(request: Any, manager: TokenizerManager) -> None:
    """Set the fields of an API request that it leaves out, or that are null.

    What would be refused if it were asked for is left out.
    """
    if not names():
        return
    left_out = _NOT_IN_STREAMS if getattr(request, "stream", False) else ()
    # Messages and responses have no field for logprobs, and come with them.
    asked = getattr(request, "logprobs", True)
    if asked is not None and asked is not False and logprobs.refusal(manager):
        left_out = (*left_out, "return_token_ids")
    _fill(request, left_out)


def fill_native(obj: GenerateReqInput | EmbeddingReqInput) -> None:
    """Set the fields of a request to the engine that it leaves out, or that are null.

    A session is refused that asks for its prompt.
    """
    if names():
        has_session = getattr(obj, "session_params", None)
        _fill(obj, ("return_prompt_token_ids",) if has_session else ())


def _fill(request: Any, left_out: Sequence[str]) -> None:
    for name in names():
        # An endpoint without the field has no attribute of its name.
        if name not in left_out and getattr(request, name, False) is None:
            setattr(request, name, True)
