"""`/v1/responses` with `return_token_ids`, a part of the patch `token-ids`.

What makes the events stays SGLang's own. Before 0.5.14 the endpoint has no function tools
outside of gpt-oss, and is not traced.
"""

from __future__ import annotations

from agentcore_patches.edits import AddField, Decorate, RefuseField
from agentcore_patches.patches.files import PROTOCOL, SERVING_RESPONSES
from agentcore_patches.patches.places import Place, absent

_SERVING = "OpenAIServingResponses"

REQUEST_FLAG: tuple[Place, ...] = (
    Place(
        "responses/request",
        "whether to answer with token IDs and logprobs",
        {
            # The request is made by hand there: a wrong type would be a 500.
            "0.5.8": AddField(
                PROTOCOL, "ResponsesRequest", "return_token_ids: Optional[Any] = None"
            ),
            "0.5.14": AddField(
                PROTOCOL, "ResponsesRequest", "return_token_ids: Optional[bool] = None"
            ),
        },
    ),
)

RESPONSES: tuple[Place, ...] = (
    *REQUEST_FLAG,
    Place(
        "responses/stamp",
        "token IDs and logprobs, or an error that says why not",
        Decorate(
            SERVING_RESPONSES,
            f"{_SERVING}.create_responses",
            "agentcore.responses.responses",
        ),
    ),
    Place(
        "responses/push",
        "wait until an event carries them",
        {
            "0.5.8": absent("the endpoint is not traced"),
            "0.5.14": Decorate(
                SERVING_RESPONSES,
                f"{_SERVING}._generate_with_builtin_tools",
                "agentcore.responses.results",
            ),
        },
    ),
    Place(
        "responses/no-field-of-ours",
        "stamped responses would have the field twice",
        RefuseField(
            PROTOCOL,
            "ResponsesResponse",
            ("prompt_token_ids", "token_ids", "token_logprobs"),
        ),
    ),
)
