"""The files of SGLang that patches change, by their paths below the package."""

from __future__ import annotations

REQUEST_LOGGER = "srt/utils/request_logger.py"
MM_PROCESSOR = "srt/multimodal/processors/base_processor.py"
SCHEDULE_BATCH = "srt/managers/schedule_batch.py"
OUTPUT_PROCESSOR = "srt/managers/scheduler_output_processor_mixin.py"
SCHEDULER = "srt/managers/scheduler.py"
MULTI_TOKENIZER = "srt/managers/multi_tokenizer_mixin.py"
IO_STRUCT = "srt/managers/io_struct.py"
TOKENIZER_MANAGER = "srt/managers/tokenizer_manager.py"
PROTOCOL = "srt/entrypoints/openai/protocol.py"
OPENAI_UTILS = "srt/entrypoints/openai/utils.py"
SERVING_BASE = "srt/entrypoints/openai/serving_base.py"
SERVING_CHAT = "srt/entrypoints/openai/serving_chat.py"
SERVING_COMPLETIONS = "srt/entrypoints/openai/serving_completions.py"
ANTHROPIC_PROTOCOL = "srt/entrypoints/anthropic/protocol.py"
ANTHROPIC_SERVING = "srt/entrypoints/anthropic/serving.py"
HTTP_SERVER = "srt/entrypoints/http_server.py"

# What a file needs is there before the file that uses it: between any two of these the
# tree imports, and serves as vanilla does.
WRITING_ORDER = (
    REQUEST_LOGGER,
    MM_PROCESSOR,
    SCHEDULE_BATCH,
    OUTPUT_PROCESSOR,
    SCHEDULER,
    MULTI_TOKENIZER,
    IO_STRUCT,
    TOKENIZER_MANAGER,
    PROTOCOL,
    OPENAI_UTILS,
    SERVING_BASE,
    SERVING_CHAT,
    SERVING_COMPLETIONS,
    ANTHROPIC_PROTOCOL,
    ANTHROPIC_SERVING,
    HTTP_SERVER,
)

# The first release that has a file, where that is not the first supported one.
FIRST_RELEASES = {ANTHROPIC_PROTOCOL: "0.5.9", ANTHROPIC_SERVING: "0.5.9"}
