"""The files of SGLang that patches change, by their paths below the package."""

from __future__ import annotations

PROTOCOL = "srt/entrypoints/openai/protocol.py"
SERVING_BASE = "srt/entrypoints/openai/serving_base.py"
SERVING_CHAT = "srt/entrypoints/openai/serving_chat.py"
HTTP_SERVER = "srt/entrypoints/http_server.py"
IO_STRUCT = "srt/managers/io_struct.py"
TOKENIZER_MANAGER = "srt/managers/tokenizer_manager.py"
OPENAI_UTILS = "srt/entrypoints/openai/utils.py"
SERVING_COMPLETIONS = "srt/entrypoints/openai/serving_completions.py"
ANTHROPIC_PROTOCOL = "srt/entrypoints/anthropic/protocol.py"
ANTHROPIC_SERVING = "srt/entrypoints/anthropic/serving.py"
MULTI_TOKENIZER = "srt/managers/multi_tokenizer_mixin.py"

# What a file needs is there before the file that uses it: between any two of these the
# tree imports, and serves as vanilla does.
WRITING_ORDER = (
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
