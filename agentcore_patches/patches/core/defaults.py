"""Fields that are true by default (AGENTCORE_DEFAULTS)."""

from __future__ import annotations

from agentcore_patches.edits import Insert
from agentcore_patches.patches.hooks import Hook
from agentcore_patches.patches.paths import (
    ANTHROPIC_SERVING,
    HTTP_SERVER,
    SERVING_BASE,
)

HOOKS: tuple[Hook, ...] = (
    Hook(
        "defaults/openai",
        "apply AGENTCORE_DEFAULTS to requests of the OpenAI endpoints",
        Insert(
            SERVING_BASE,
            "OpenAIServingBase.handle_request",
            "agentcore.http.defaults.fill(request, self.tokenizer_manager)",
        ),
    ),
    Hook(
        "defaults/messages",
        "apply AGENTCORE_DEFAULTS to requests of /v1/messages",
        Insert(
            ANTHROPIC_SERVING,
            "AnthropicServing.handle_messages",
            "agentcore.http.defaults.fill(\n"
            "    request, self.openai_serving_chat.tokenizer_manager\n"
            ")",
        ),
    ),
    Hook(
        "defaults/native",
        "apply AGENTCORE_DEFAULTS to requests of the native endpoints",
        Insert(
            HTTP_SERVER,
            "$generate_request",
            "agentcore.http.defaults.fill_native(obj)",
        ),
        also=("encode_request", "classify_request"),
    ),
)
