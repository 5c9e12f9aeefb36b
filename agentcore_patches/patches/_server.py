"""What a server says of its patches, and refuses to start with; all patches' places."""

from __future__ import annotations

from agentcore_patches.edits import Insert
from agentcore_patches.patches.hooks import Hook, absent
from agentcore_patches.patches.paths import HTTP_SERVER

SERVER: tuple[Hook, ...] = (
    Hook(
        "server/check-environment",
        "a variable that cannot be followed is an error",
        Insert(
            HTTP_SERVER,
            "launch_server",
            "agentcore.server.check_environment(server_args)",
        ),
    ),
    # /server_info has all of the scheduler's. With several tokenizer workers each one
    # says so: only now it has a log.
    Hook(
        "server/announce",
        "which patches are in place, in the log and in /server_info",
        Insert(
            HTTP_SERVER,
            "lifespan",
            "agentcore.server.announce(_global_state.scheduler_info)",
            after="fast_api_app.state.openai_serving_completion = "
            "OpenAIServingCompletion(...)",
        ),
    ),
    Hook(
        "server/answer-first",
        "or what asks the scheduler waits for the first request",
        Insert(
            HTTP_SERVER,
            "lifespan",
            "_global_state.tokenizer_manager.auto_create_handle_loop()",
            after="fast_api_app.state.openai_serving_chat = OpenAIServingChat(...)",
        ),
        since={
            "0.5.10": absent("SGLang does it in each method that asks"),
        },
        upstream="PR 19610",
    ),
)
