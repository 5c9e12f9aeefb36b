"""The files of SGLang that patches change or add, by their paths below the package."""

from __future__ import annotations

from pathlib import Path

LANDING = "srt/agentcore"
"""The folder of the landed modules."""

FACTS_MODULE = f"{LANDING}/release.py"
"""The module with facts about the release and the extras."""

LANDING_SOURCES = Path(__file__).parents[1] / "landing"

# The `__init__` of the package imports the folders, so they are written first.
LANDED = tuple(
    f"{LANDING}/{module.relative_to(LANDING_SOURCES)}"
    for pattern in ("*/*.py", "*.py")
    for module in sorted(LANDING_SOURCES.glob(pattern))
)

REQUEST_LOGGER = "srt/utils/request_logger.py"
MM_PROCESSOR = "srt/multimodal/processors/base_processor.py"
LOGPROB_UTILS = "srt/layers/utils/logprob.py"
LOGPROB_PROCESSOR = "srt/layers/logprob_processor.py"
LLGUIDANCE = "srt/constrained/llguidance_backend.py"
MIN_NEW_TOKENS = "srt/sampling/penaltylib/min_new_tokens.py"
SCHEDULE_BATCH = "srt/managers/schedule_batch.py"
OUTPUT_PROCESSOR = "srt/managers/scheduler_output_processor_mixin.py"
RESULT_PROCESSOR = "srt/managers/scheduler_components/batch_result_processor.py"
LOGPROB_RESULTS = "srt/managers/scheduler_components/logprob_result_processor.py"
OUTPUT_STREAMER = "srt/managers/scheduler_components/output_streamer.py"
OUTPUT_SENDER = "srt/managers/scheduler_components/output_sender.py"
UPDATE_WEIGHTS_MIXIN = "srt/managers/scheduler_update_weights_mixin.py"
WEIGHT_UPDATER = "srt/managers/scheduler_components/weight_updater.py"
COMMUNICATOR_MIXIN = "srt/managers/tokenizer_communicator_mixin.py"
CONTROL_MIXIN = "srt/managers/tokenizer_control_mixin.py"
DISAGGREGATED_DECODE = "srt/disaggregation/decode.py"
DETOKENIZER = "srt/managers/detokenizer_manager.py"
OLD_SESSION_CONTROLLER = "srt/managers/session_controller.py"
SESSION_CONTROLLER = "srt/session/session_controller.py"
SCHEDULER = "srt/managers/scheduler.py"
MULTI_TOKENIZER = "srt/managers/multi_tokenizer_mixin.py"
IO_STRUCT = "srt/managers/io_struct.py"
TOKENIZER_MANAGER = "srt/managers/tokenizer_manager.py"
PROTOCOL = "srt/entrypoints/openai/protocol.py"
OPENAI_UTILS = "srt/entrypoints/openai/utils.py"
SERVING_BASE = "srt/entrypoints/openai/serving_base.py"
SERVING_CHAT = "srt/entrypoints/openai/serving_chat.py"
SERVING_RESPONSES = "srt/entrypoints/openai/serving_responses.py"
SERVING_COMPLETIONS = "srt/entrypoints/openai/serving_completions.py"
SERVING_TOKENIZE = "srt/entrypoints/openai/serving_tokenize.py"
ANTHROPIC_PROTOCOL = "srt/entrypoints/anthropic/protocol.py"
ANTHROPIC_SERVING = "srt/entrypoints/anthropic/serving.py"
HTTP_SERVER = "srt/entrypoints/http_server.py"

CHAT_AND_COMPLETIONS = (
    ("chat", SERVING_CHAT, "OpenAIServingChat"),
    ("completion", SERVING_COMPLETIONS, "OpenAIServingCompletion"),
)
"""File and class of the two endpoints that many hooks change alike."""

SSE_UTILS = "srt/entrypoints/openai/sse_utils.py"
"""The patches only read this file; earlier versions changed it."""

# Order of writing: a file comes after the files that it needs. Between any two writes,
# the tree imports and serves like stock SGLang.
WRITING_ORDER = (
    *LANDED,
    REQUEST_LOGGER,
    MM_PROCESSOR,
    LOGPROB_UTILS,
    LOGPROB_PROCESSOR,
    LLGUIDANCE,
    MIN_NEW_TOKENS,
    SCHEDULE_BATCH,
    UPDATE_WEIGHTS_MIXIN,
    WEIGHT_UPDATER,
    OUTPUT_PROCESSOR,
    RESULT_PROCESSOR,
    LOGPROB_RESULTS,
    OUTPUT_STREAMER,
    OUTPUT_SENDER,
    SCHEDULER,
    DISAGGREGATED_DECODE,
    DETOKENIZER,
    OLD_SESSION_CONTROLLER,
    SESSION_CONTROLLER,
    MULTI_TOKENIZER,
    IO_STRUCT,
    COMMUNICATOR_MIXIN,
    CONTROL_MIXIN,
    TOKENIZER_MANAGER,
    PROTOCOL,
    OPENAI_UTILS,
    SERVING_BASE,
    SERVING_CHAT,
    SERVING_COMPLETIONS,
    SERVING_RESPONSES,
    SERVING_TOKENIZE,
    ANTHROPIC_PROTOCOL,
    ANTHROPIC_SERVING,
    HTTP_SERVER,
)

EVER_PATCHED = (
    *(path for path in WRITING_ORDER if path not in LANDED),
    SSE_UTILS,
    "srt/entrypoints/openai/chat_encoding_adapters.py",
    "srt/entrypoints/openai/serving_deepseek_recipe.py",
    "srt/entrypoints/openai/serving_inkling.py",
)
"""Every file of SGLang that any version of this package has patched.

A file that leaves `WRITING_ORDER` must be added here: without it the records of earlier
versions are unreadable, so that their patches can no longer be reverted.
"""

# First and last release in which patches change a file, for files that are not changed
# in all releases. Other releases lack the file, or need no change of it.
RELEASES = {
    LLGUIDANCE: ("", "0.5.13"),
    LOGPROB_UTILS: ("", "0.5.15"),
    LOGPROB_PROCESSOR: ("0.5.16", "0.5.20"),
    COMMUNICATOR_MIXIN: ("", "0.5.10"),
    CONTROL_MIXIN: ("0.5.11", ""),
    OUTPUT_PROCESSOR: ("", "0.5.12"),
    UPDATE_WEIGHTS_MIXIN: ("", "0.5.12"),
    WEIGHT_UPDATER: ("0.5.13", ""),
    RESULT_PROCESSOR: ("0.5.13", ""),
    LOGPROB_RESULTS: ("0.5.13", ""),
    OUTPUT_STREAMER: ("0.5.13", ""),
    OUTPUT_SENDER: ("0.5.13", "0.5.17"),
    DISAGGREGATED_DECODE: ("0.5.11", ""),
    DETOKENIZER: ("", "0.5.18"),
    OLD_SESSION_CONTROLLER: ("", "0.5.10"),
    SESSION_CONTROLLER: ("0.5.11", ""),
    ANTHROPIC_PROTOCOL: ("0.5.9", ""),
    ANTHROPIC_SERVING: ("0.5.9", ""),
}
