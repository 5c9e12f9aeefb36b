"""What this release of SGLang does: written by agentcore-patch apply."""

# Where a tokenizer manager says that chunks hold only the new token IDs.
STREAM_OUTPUT = "server_args.stream_output"

# Whether a stream's first line is made before its status is sent.
FIRST_LINE_BEFORE_STATUS = False

# Whether such chunks hold only the new text, too.
TEXT_IS_NEW = False

# Whether such chunks hold only the new logprobs, too.
LOGPROBS_ARE_NEW = False

# Whether the token IDs of other chunks are the list that goes on growing.
OUTPUT_IDS_GROW = False

# Which attribute of a request's state has the keys of a sampler that it shows.
REPORTED_INFO = "customized_info_accumulated"

# Whether SGLang releases the LoRA adapter of a request that is aborted.
ABORTS_RELEASE_LORA = False

# Whether the experts of tokens begin where a request asks.
ROUTED_EXPERTS_HAVE_START = False

# Whether speculative decoding with overlap records no logprobs but the first's.
SPECULATION_LOSES_LOGPROBS = True

# Whether the bytes of a logprob are those of its token ID, not of its text.
BYTES_OF_ID = False

# Whether a request to a session may have an empty prompt.
SESSIONS_HAVE_PROMPTS = False

# Whether pydantic writes the JSON of whole answers, not FastAPI's encoder.
PYDANTIC_ANSWERS = False

# Whether /v1/responses has function tools outside of gpt-oss, and is traced.
RESPONSES_ARE_TRACED = False

# Whether SGLANG_RUST_SERVER starts another server, in Rust.
HAS_RUST_SERVER = False

# Which method of a scheduler says that it has no request.
IS_IDLE = "_is_no_request"

# Whether a session may keep its keys and values from turn to turn.
SESSIONS_MAY_STREAM = False

# Whether SGLang has a class for the tokens of a version of weights.
SPANS_ARE_STRUCTS = False

# Which module keeps what the encoders of images computed.
IMAGE_CACHE = "mm_utils"

# The version of agentcore-patch that wrote this.
VERSION = "0.2.0"

# The patches that are in place.
PATCHES = (
    "customized-info",
    "fast-answers",
    "prefix",
    "tito",
    "token-ids",
    "weight-versions",
)

# Their boolean request fields.
REQUEST_FLAGS = (
    "return_prompt_token_ids",
    "return_meta_info",
    "return_token_ids",
    "return_tokens_as_token_ids",
    "return_weight_versions",
)

# The releases that it has edits for.
LISTED = (
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
