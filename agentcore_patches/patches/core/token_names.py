"""`return_tokens_as_token_ids`.

The engine is asked for logprobs without text (`token-ids/ask-engine`,
`completions/ask-engine`), and returns None instead of the text.
"""

from __future__ import annotations

from agentcore_patches.edits import AddField, Insert
from agentcore_patches.patches.hooks import Hook, absent
from agentcore_patches.patches.paths import (
    OPENAI_UTILS,
    PROTOCOL,
    SERVING_CHAT,
)

HOOKS: tuple[Hook, ...] = (
    Hook(
        "token-names/request",
        'name tokens by ID in logprobs: "token_id:42"',
        AddField(
            PROTOCOL,
            "ChatCompletionRequest",
            "return_tokens_as_token_ids: Optional[bool] = None",
        ),
        also=("CompletionRequest",),
    ),
    Hook(
        "token-names/tokens",
        "name tokens by ID if the engine omitted their text",
        Insert(
            OPENAI_UTILS,
            "to_openai_style_logprobs.append_token_logprobs",
            "token_logprobs = agentcore.http.logprobs.name_by_id(token_logprobs)",
        ),
    ),
    Hook(
        "token-names/top",
        "name top tokens by ID if the engine omitted their text",
        Insert(
            OPENAI_UTILS,
            "to_openai_style_logprobs.append_top_logprobs",
            "top_logprobs = agentcore.http.logprobs.name_top_by_id(top_logprobs)",
        ),
    ),
    Hook(
        "token-names/chat",
        "name tokens by ID if the engine omitted their text",
        absent("chat takes its logprobs from to_openai_style_logprobs"),
        since={
            "0.5.21": Insert(
                SERVING_CHAT,
                "OpenAIServingChat._build_token_logprobs_from_raw",
                "output_token_logprobs = agentcore.http.logprobs.name_by_id(\n"
                "    output_token_logprobs\n"
                ")\n"
                "output_top_logprobs = agentcore.http.logprobs.name_top_by_id(\n"
                "    output_top_logprobs\n"
                ")",
            ),
        },
    ),
)
