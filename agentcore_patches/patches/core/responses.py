"""`/v1/responses` with `return_token_ids`.

SGLang's own code builds the events. Before 0.5.14, the endpoint has no function tools
except for gpt-oss, and is not traced.
"""

from __future__ import annotations

from agentcore_patches.edits import AddField, Decorate, Insert, RefuseField
from agentcore_patches.patches.hooks import Hook, absent
from agentcore_patches.patches.paths import PROTOCOL, SERVING_RESPONSES

_SERVING = "OpenAIServingResponses"

HOOKS: tuple[Hook, ...] = (
    Hook(
        "responses/request",
        "return token IDs and logprobs; take lora_path, as chat does",
        AddField(
            PROTOCOL,
            "ResponsesRequest",
            "return_token_ids: agentcore.http.responses.Flag = None\n"
            "return_prompt_token_ids: agentcore.http.responses.PromptFlag = None\n"
            "lora_path: agentcore.http.responses.LoraPath = None",
        ),
    ),
    Hook(
        "responses/sent-back",
        "drop IDs and nulls of earlier messages: SGLang rejects them",
        absent("the endpoint accepts no items of earlier responses"),
        since={
            "0.5.14": Insert(
                PROTOCOL,
                "ResponsesRequest",
                "_take_back = "
                'model_validator(mode="before")(agentcore.http.responses.take_back)',
                before="instructions: Optional[str] = None",
            ),
        },
    ),
    Hook(
        "responses/stamp",
        "add token IDs and logprobs if requested, or reject the request",
        Decorate(
            SERVING_RESPONSES,
            f"{_SERVING}.create_responses",
            "agentcore.http.responses.responses",
        ),
    ),
    Hook(
        "responses/push",
        "record the engine's results for token IDs and for the memory",
        absent("the endpoint is not traced"),
        since={
            "0.5.14": Decorate(
                SERVING_RESPONSES,
                f"{_SERVING}._generate_with_builtin_tools",
                "agentcore.http.responses.results",
            ),
        },
    ),
    Hook(
        "responses/no-such-field",
        "the patch writes this field itself; events would have it twice",
        RefuseField(
            PROTOCOL,
            "ResponsesResponse",
            ("prompt_token_ids", "token_ids", "token_logprobs"),
        ),
    ),
)
