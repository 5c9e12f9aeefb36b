"""Non-streaming responses without FastAPI's encoder, for two patches."""

from __future__ import annotations

from agentcore_patches.edits import Replace
from agentcore_patches.patches.hooks import Hook
from agentcore_patches.patches.paths import SERVING_BASE

# FastAPI's encoder takes 1.5 microseconds for each token ID. From 0.5.22 on, pydantic
# writes non-streaming responses, and the hook writes only the logprobs that
# `fast-answers` left out.
ANSWER_BY_ORJSON: tuple[Hook, ...] = (
    Hook(
        "whole-answers/by-orjson",
        "write the response with orjson: FastAPI's encoder is slow",
        Replace(
            SERVING_BASE,
            "OpenAIServingBase.handle_request",
            "return await self._handle_non_streaming_request($ADAPTED, $PROCESSED, $RAW)",
            "return await agentcore.answers.answer(\n"
            "    self._handle_non_streaming_request(\n"
            "        $ADAPTED, $PROCESSED, $RAW\n"
            "    )\n"
            ")",
        ),
        upstream="pydantic's writer, 0.5.22",
    ),
)
