"""Report the patches of a server, and check its environment."""

from __future__ import annotations

from agentcore_patches.edits import Insert
from agentcore_patches.patches.hooks import Hook
from agentcore_patches.patches.paths import HTTP_SERVER

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
)
