"""Lands in `entrypoints/openai/protocol.py` of v0.5.8, for the patch `token-ids`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import model_serializer
else:

    def model_serializer(mode):
        """Stands for pydantic's, which is there where the definitions land."""
        return lambda function: function


@model_serializer(mode="wrap")
def _serialize_answer(self, handler: Any) -> Any:
    data = handler(self)
    if data.get("prompt_token_ids") is None:
        data.pop("prompt_token_ids", None)
    return data


@model_serializer(mode="wrap")
def _serialize_chunk(self, handler: Any) -> Any:
    data = handler(self)
    for key in ("prompt_token_ids", "metadata"):
        if data.get(key) is None:
            data.pop(key, None)
    for choice in data.get("choices", ()):
        for key in ("token_ids", "prompt_token_ids"):
            if choice.get(key) is None:
                choice.pop(key, None)
    return data
