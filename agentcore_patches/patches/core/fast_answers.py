"""Non-streaming responses, serialized without a pydantic model per token.

SGLang 0.5.9 builds a pydantic model for each token's logprob, and FastAPI's encoder
visits every value before `json.dumps`. For 16,000 tokens this blocks the event loop for
half a second and stalls every stream. orjson writes the same content. A response that
orjson would write differently takes SGLang's own path.
"""

from __future__ import annotations

from agentcore_patches.edits import Replace
from agentcore_patches.patches.hooks import Hook, absent
from agentcore_patches.patches.paths import (
    HTTP_SERVER,
    IO_STRUCT,
    SERVING_BASE,
    SERVING_CHAT,
)

HOOKS: tuple[Hook, ...] = (
    # FastAPI's encoder takes 1.5 microseconds for each token ID. From 0.5.22 on, pydantic
    # writes non-streaming responses, and the hook writes only the logprobs that
    # `fast-answers/logprobs` left out.
    Hook(
        "fast-answers/by-orjson",
        "write the response with orjson: FastAPI's encoder is slow",
        Replace(
            SERVING_BASE,
            "OpenAIServingBase.handle_request",
            "return await self._handle_non_streaming_request($ADAPTED, $PROCESSED, $RAW)",
            "return await agentcore.http.answers.answer(\n"
            "    $PROCESSED,\n"
            "    self._handle_non_streaming_request(\n"
            "        $ADAPTED, $PROCESSED, $RAW\n"
            "    ),\n"
            ")",
        ),
        upstream="pydantic's writer, 0.5.22",
    ),
    Hook(
        "fast-answers/logprobs",
        "skip the pydantic model per token: orjson writes the logprobs",
        Replace(
            SERVING_CHAT,
            "OpenAIServingChat._build_chat_response",
            "choice_logprobs = self._process_response_logprobs(ret_item)",
            "choice_logprobs = agentcore.http.answers.build_logprobs(\n"
            "    self, request, ret_item\n"
            ")",
        ),
    ),
    Hook(
        "fast-answers/generate",
        "write the response with orjson: FastAPI's encoder is slow",
        Replace(
            HTTP_SERVER,
            "generate_request",
            "return ret",
            "return agentcore.http.answers.generated(ret, request, generate_request)",
        ),
        since={
            "0.5.10": absent("SGLang writes /generate with orjson"),
        },
    ),
    Hook(
        "fast-answers/prompt",
        "skip pydantic for a list of token IDs: it checks them twice",
        Replace(
            IO_STRUCT,
            "GenerateReqInput",
            "input_ids: Optional[Union[List[List[int]], List[int]]] = None",
            "input_ids: agentcore.http.answers.RequestTokenIds = None",
        ),
        since={
            "0.5.13": absent("SGLang takes such a prompt as it is"),
        },
    ),
)
