"""LoRA adapters by their bare names, on every endpoint.

SGLang ignores an adapter that a request names in vLLM's way, and on /v1/messages and
/v1/responses also in its own: the base model answers.
"""

from __future__ import annotations

from agentcore_patches.edits import AddKeyword, Decorate, Insert
from agentcore_patches.patches.hooks import Hook
from agentcore_patches.patches.paths import (
    ANTHROPIC_SERVING,
    HTTP_SERVER,
    SERVING_BASE,
    SERVING_RESPONSES,
)

_RESPONSES = "OpenAIServingResponses"

HOOKS: tuple[Hook, ...] = (
    Hook(
        "adapters/by-name",
        "find an adapter by its bare name; reject unknown names",
        Decorate(
            SERVING_BASE,
            "OpenAIServingBase._resolve_lora_path",
            "agentcore.http.adapters.by_name",
        ),
    ),
    Hook(
        "adapters/listed",
        "list a name once: an adapter may have the served name",
        Insert(
            HTTP_SERVER,
            "available_models",
            "agentcore.http.adapters.list_once(model_cards)",
            before="return $MODELS",
        ),
    ),
    Hook(
        "adapters/messages-unknown",
        "answer 404 to an unknown model: chat's exception would be a 500",
        Insert(
            ANTHROPIC_SERVING,
            "AnthropicServing.handle_messages",
            "agentcore_unknown_model = agentcore.http.messages.find_model_error(\n"
            "    self, request\n"
            ")\n"
            "if agentcore_unknown_model is not None:\n"
            "    return agentcore_unknown_model",
        ),
    ),
    Hook(
        "adapters/responses-chat",
        "pass lora_path on: a remembered prompt belongs to an adapter",
        AddKeyword(
            SERVING_RESPONSES,
            f"{_RESPONSES}._make_request",
            "ChatCompletionRequest",
            "lora_path=request.lora_path",
        ),
    ),
    Hook(
        "adapters/responses",
        "pass the adapter on to the engine: the base would answer",
        AddKeyword(
            SERVING_RESPONSES,
            f"{_RESPONSES}.create_responses",
            "GenerateReqInput",
            "lora_path=self._resolve_lora_path(\n"
            "    request.model, request.lora_path\n"
            ")",
        ),
    ),
    Hook(
        "adapters/responses-tools",
        "keep the adapter after a call of a built-in tool",
        AddKeyword(
            SERVING_RESPONSES,
            f"{_RESPONSES}._generate_with_builtin_tools",
            "GenerateReqInput",
            "lora_path=adapted_request.lora_path",
        ),
    ),
)
