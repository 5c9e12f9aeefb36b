"""Defaults of boolean request fields, for requests that leave the fields out.

They serve agents that cannot set the fields, and routers that drop unknown fields.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from . import logprobs, request_fields

if TYPE_CHECKING:
    from sglang.srt.managers.tokenizer_manager import TokenizerManager

    from .request_fields import EngineRequest

VARIABLE = "AGENTCORE_DEFAULTS"

FLAGS = (
    "return_prompt_token_ids",
    "return_meta_info",
    "return_token_ids",
    "return_token_logprobs",
    "return_tokens_as_token_ids",
    "return_weight_versions",
)
"""The boolean request fields."""

_VALUES = {"": True, "true": True, "false": False}

# Chat rejects a streaming request that sets these.
_NOT_IN_STREAMS = ("return_prompt_token_ids", "return_meta_info")


@cache
def values() -> Mapping[str, bool]:
    """Return the values of the fields that `AGENTCORE_DEFAULTS` names.

    Raises:
        ValueError: it names no field of requests, or gives a value that is not boolean.
    """
    parts = os.environ.get(VARIABLE, "").split(",")
    found: dict[str, bool] = {}
    for part in filter(None, map(str.strip, parts)):
        name, _, text = map(str.strip, part.partition("="))
        if name not in FLAGS:
            raise ValueError(
                f"{VARIABLE} names {name!r}, which is not a boolean request field of "
                f"the installed patches: those are {', '.join(FLAGS)}. Correct or "
                "unset it."
            )
        if text.lower() not in _VALUES:
            raise ValueError(
                f"{VARIABLE} has the value {text!r} for {name}, which must be true or "
                "false. Correct or unset it."
            )
        found[name] = _VALUES[text.lower()]
    return found


def fill(request: Any, manager: TokenizerManager) -> None:
    """Set the default fields that an API request leaves out or sets to null.

    A field that would get the request rejected is not set. The logprobs of a
    completion's tokens come with their IDs, which chat returns anyway.
    """
    if values():
        _fill(request, _left_out(request, manager))
    is_chat = hasattr(request, "messages")
    is_flat = request_fields.read(request, "return_token_logprobs")
    if is_flat and request.return_token_ids is None and not is_chat:
        request.return_token_ids = True


def _left_out(request: Any, manager: TokenizerManager) -> list[str]:
    """Return the fields that would get an API request rejected if they were true."""
    left_out = [*_NOT_IN_STREAMS] if request_fields.read(request, "stream") else []
    # /v1/messages and /v1/responses return logprobs without a request field for them.
    asked = request_fields.read(request, "logprobs", True)
    refusal = logprobs.refusal(manager)
    if refusal and asked is not None and asked is not False:
        left_out.append("return_token_ids")
    ids = request_fields.read(request, "return_token_ids")
    if ids is None:
        ids = values().get("return_token_ids")
    if refusal or ids is False:
        left_out.append("return_token_logprobs")
    return left_out


def fill_native(obj: EngineRequest) -> None:
    """Set the default fields that an engine request leaves out or sets to null.

    The prompt's token IDs are not requested for sessions: that would be rejected.
    """
    if values():
        has_session = request_fields.read(obj, "session_params")
        _fill(obj, ("return_prompt_token_ids",) if has_session else ())


def _fill(request: Any, left_out: Sequence[str]) -> None:
    for name, value in values().items():
        is_absent = request_fields.read(request, name, False) is None
        if is_absent and not (value and name in left_out):
            setattr(request, name, value)
