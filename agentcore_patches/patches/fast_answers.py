"""non-streaming responses, serialized without a pydantic model per token

SGLang 0.5.9 builds a pydantic model for each token's logprob, and FastAPI's encoder
visits every value before `json.dumps`. For 16,000 tokens this blocks the event loop for
half a second and stalls every stream. orjson writes the same content. A response that
orjson would write differently takes SGLang's own path.
"""

from __future__ import annotations

from agentcore_patches.edits import Replace
from agentcore_patches.patches._release_checks import RELEASE_CHECKS
from agentcore_patches.patches._requests import CHECKED_REQUESTS
from agentcore_patches.patches._server import SERVER
from agentcore_patches.patches._whole_answers import ANSWER_BY_ORJSON
from agentcore_patches.patches.hooks import Hook, absent
from agentcore_patches.patches.paths import HTTP_SERVER, IO_STRUCT, SERVING_CHAT

RESPONSE_FIELDS: tuple[str, ...] = ()

FAST_ANSWERS: tuple[Hook, ...] = (
    Hook(
        "fast-answers/logprobs",
        "skip the pydantic model per token: orjson writes the logprobs",
        Replace(
            SERVING_CHAT,
            "OpenAIServingChat._build_chat_response",
            "choice_logprobs = self._process_response_logprobs(ret_item)",
            "choice_logprobs = agentcore.answers.build_logprobs(self, ret_item)",
        ),
    ),
    Hook(
        "fast-answers/generate",
        "write the response with orjson: FastAPI's encoder is slow",
        Replace(
            HTTP_SERVER,
            "generate_request",
            "return ret",
            "return agentcore.answers.generated(ret, request, generate_request)",
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
            "input_ids: agentcore.answers.RequestTokenIds = None",
        ),
        since={
            "0.5.13": absent("SGLang takes such a prompt as it is"),
        },
    ),
)

HOOKS: tuple[Hook, ...] = (
    *RELEASE_CHECKS,
    *SERVER,
    *CHECKED_REQUESTS,
    *ANSWER_BY_ORJSON,
    *FAST_ANSWERS,
)
