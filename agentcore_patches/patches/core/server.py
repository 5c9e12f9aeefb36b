"""Report the patches of a server, check its environment, and apply its defaults."""

from __future__ import annotations

from agentcore_patches.edits import Insert
from agentcore_patches.patches.hooks import Hook, absent
from agentcore_patches.patches.paths import (
    ANTHROPIC_SERVING,
    HTTP_SERVER,
    SERVING_BASE,
)

HOOKS: tuple[Hook, ...] = (
    Hook(
        "server/check-environment",
        "reject environment variables that are not valid or supported",
        Insert(
            HTTP_SERVER,
            "launch_server",
            "agentcore.http.server.check_environment(server_args)",
        ),
    ),
    # /server_info returns everything in `scheduler_info`. With several tokenizer
    # workers each one logs it here, where its logger is set up.
    Hook(
        "server/announce",
        "report the patches in the log, /server_info and /metrics",
        Insert(
            HTTP_SERVER,
            "lifespan",
            "agentcore.http.server.announce(_global_state.scheduler_info, server_args)",
            after="fast_api_app.state.openai_serving_completion = "
            "OpenAIServingCompletion(...)",
        ),
    ),
    Hook(
        "server/answer-first",
        "start the handle loop now; /server_info hangs until it runs",
        Insert(
            HTTP_SERVER,
            "lifespan",
            "_global_state.tokenizer_manager.auto_create_handle_loop()",
            after="fast_api_app.state.openai_serving_chat = OpenAIServingChat(...)",
        ),
        since={
            "0.5.10": absent("SGLang does it in each method that needs it"),
        },
        upstream="PR 19610, 0.5.10",
    ),
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
