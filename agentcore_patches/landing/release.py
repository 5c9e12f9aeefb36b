"""Facts about this SGLang release, written by `agentcore-patch apply`."""

# Attribute of the tokenizer manager: chunks hold only new token IDs.
STREAM_OUTPUT = "server_args.stream_output"

# SGLang generates a stream's first line before it sends the status.
FIRST_LINE_BEFORE_STATUS = False

# Such chunks also hold only new text.
TEXT_IS_NEW = False

# Such chunks also hold only new logprobs.
LOGPROBS_ARE_NEW = False

# The token IDs of cumulative chunks are one list that keeps growing.
OUTPUT_IDS_GROW = False

# Attribute of a request's state: the sampler's keys to report to clients.
REPORTED_INFO = "customized_info_accumulated"

# SGLang releases the LoRA adapter of an aborted request.
ABORTS_RELEASE_LORA = False

# The engine's routed experts start at the requested token.
ROUTED_EXPERTS_HAVE_START = False

# Speculative decoding with overlap records only the first token's logprobs.
SPECULATION_LOSES_LOGPROBS = True

# The `bytes` of a logprob are those of its token ID, not of its text.
BYTES_OF_ID = False

# A request in a session may have an empty prompt.
SESSIONS_HAVE_PROMPTS = False

# pydantic, not FastAPI's encoder, writes non-streaming responses.
PYDANTIC_ANSWERS = False

# /v1/responses supports function tools beyond gpt-oss, and is traced.
RESPONSES_ARE_TRACED = False

# SGLANG_RUST_SERVER starts a server written in Rust.
HAS_RUST_SERVER = False

# Method of the scheduler: true if it has no requests.
IS_IDLE = "_is_no_request"

# A session may keep its KV cache from turn to turn.
SESSIONS_MAY_STREAM = False

# A request for min_new_tokens crashes if the tokenizer has no EOS token.
MIN_TOKENS_NEED_EOS = True

# SGLang has a class for spans of tokens with one weight version.
SPANS_ARE_STRUCTS = False

# Field of a request: the data parallel rank to send it to.
DP_RANK = "data_parallel_rank"

# A prompt that a processor has loaded has its token IDs beside its text.
LOADED_HAVE_IDS = False

# Module that caches image embeddings.
IMAGE_CACHE = "mm_utils"

# The version of agentcore-patch that wrote this.
VERSION = "0.4.0.dev0"

# The core and the installed extras.
INSTALLED: tuple[str, ...] = ("core",)

# The SGLang releases that this version of agentcore-patch supports.
LISTED: tuple[str, ...] = (
    "0.5.8",
    "0.5.8.post1",
    "0.5.9",
    "0.5.10",
    "0.5.10.post1",
    "0.5.11",
    "0.5.12",
    "0.5.12.post1",
    "0.5.13",
    "0.5.13.post1",
    "0.5.14",
    "0.5.15",
    "0.5.15.post1",
    "0.5.16",
    "0.5.17",
    "0.5.18",
    "0.5.19",
    "0.5.20",
    "0.5.21",
    "0.5.22",
    "0.5.23",
)
