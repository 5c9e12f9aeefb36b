"""Whole answers without FastAPI's encoder, for `token-ids` and `fast-answers`."""

from __future__ import annotations

from agentcore_patches.edits import Edit, Graft, Replace
from agentcore_patches.grafts.fast_answers import (
    _dump_numbers,
    _prepare_for_orjson,
    _write_answer,
)
from agentcore_patches.patches._files import SERVING_BASE

# FastAPI's encoder takes a microsecond and a half for each token ID. From v0.5.22 on
# pydantic writes whole answers.
_WHOLE_ANSWERS = "whole answers without FastAPI's encoder"
ANSWER_BY_ORJSON: tuple[Edit, ...] = (
    *(
        Graft(
            SERVING_BASE,
            "OpenAIServingBase",
            function,
            note=_WHOLE_ANSWERS,
            until="0.5.21",
        )
        for function in (_dump_numbers, _prepare_for_orjson, _write_answer)
    ),
    Replace(
        SERVING_BASE,
        "OpenAIServingBase.handle_request",
        "return await self._handle_non_streaming_request(ADAPTED, PROCESSED, RAW)",
        "return _write_answer(\n"
        "    await self._handle_non_streaming_request(\n"
        "        ADAPTED, PROCESSED, RAW\n"
        "    )\n"
        ")",
        note=_WHOLE_ANSWERS,
        until="0.5.21",
    ),
)
