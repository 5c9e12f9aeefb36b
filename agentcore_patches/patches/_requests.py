"""Checks for requests that would crash the engine; part of every patch."""

from __future__ import annotations

from agentcore_patches.edits import Insert
from agentcore_patches.patches._prompts import CHECKED_PROMPTS
from agentcore_patches.patches._request_ids import REQUEST_IDS
from agentcore_patches.patches.hooks import Hook, absent
from agentcore_patches.patches.paths import (
    LOGPROB_PROCESSOR,
    LOGPROB_UTILS,
    MIN_NEW_TOKENS,
    OUTPUT_PROCESSOR,
    PROTOCOL,
    RESULT_PROCESSOR,
    TOKENIZER_MANAGER,
)

# Without `token_ids_logprob`, a request in a batch with one that has it counts as a
# request for no IDs: None crashes the scheduler, or shifts the values of other
# requests.
SCORING: tuple[Hook, ...] = (
    Hook(
        "scoring/batch",
        "replace None by []: None crashes the copy to the CPU",
        Insert(
            LOGPROB_UTILS,
            "get_token_ids_logprobs_raw",
            "token_ids_logprobs = [*map(lambda ids: ids or [], token_ids_logprobs)]",
        ),
        since={
            "0.5.10": Insert(
                LOGPROB_UTILS,
                "get_token_ids_logprobs_raw",
                "token_ids_logprobs_list = "
                "[*map(lambda ids: ids or [], token_ids_logprobs_list)]",
            ),
            "0.5.16": Insert(
                LOGPROB_PROCESSOR,
                "get_token_ids_logprobs_raw",
                "token_ids_logprobs_list = "
                "[*map(lambda ids: ids or [], token_ids_logprobs_list)]",
            ),
            "0.5.21": absent("SGLang steps over them"),
        },
        upstream="issue 34719",
    ),
    Hook(
        "scoring/chunk",
        "replace None by []: None shifts the values of other requests",
        Insert(
            LOGPROB_UTILS,
            "get_token_ids_logprobs_chunk",
            "token_ids_logprobs = [*map(lambda ids: ids or [], token_ids_logprobs)]",
        ),
        since={
            "0.5.16": Insert(
                LOGPROB_PROCESSOR,
                "get_token_ids_logprobs_chunk",
                "token_ids_logprobs = "
                "[*map(lambda ids: ids or [], token_ids_logprobs)]",
            ),
            "0.5.18": absent("SGLang keeps a place for them"),
        },
    ),
)

# While steps overlap, a request may be retracted before the results of its prefill are
# processed. SGLang skips them, and computes them again.
_SKIPPED = "req.finished() or req.is_retracted"
_SKIPPED_CHUNK = (
    "(req.finished() and req.inflight_middle_chunks <= 0) or req.is_retracted"
)
_PREFILL = "SchedulerBatchResultProcessor.process_batch_result_prefill"
_STEP_OVER = (
    "    agentcore_counter = self.logprob_result_processor\n"
    "    logprob_pt += agentcore_counter.calculate_num_input_logprobs(\n"
    "        req,\n"
    "        extend_input_len_per_req[i],\n"
    "        extend_logprob_start_len_per_req[i],\n"
    "    )"
)

RETRACTED: tuple[Hook, ...] = (
    Hook(
        "retracted/logprobs",
        "skip its prompt logprobs, or they shift those of later requests",
        Insert(
            OUTPUT_PROCESSOR,
            "SchedulerOutputProcessorMixin.process_batch_result_prefill",
            f"if batch.return_logprob and ({_SKIPPED}):\n"
            "    logprob_pt += self._calculate_num_input_logprobs(\n"
            "        req,\n"
            "        extend_input_len_per_req[i],\n"
            "        extend_logprob_start_len_per_req[i],\n"
            "    )",
            before=f"if {_SKIPPED}: ...",
        ),
        since={
            "0.5.13": Insert(
                RESULT_PROCESSOR,
                _PREFILL,
                f"if batch.return_logprob and ({_SKIPPED}):\n{_STEP_OVER}",
                before=f"if {_SKIPPED}: ...",
            ),
            "0.5.14": Insert(
                RESULT_PROCESSOR,
                _PREFILL,
                "if batch.return_logprob and (\n"
                "    (req.finished() and req.inflight_middle_chunks <= 0)\n"
                "    or req.is_retracted\n"
                f"):\n{_STEP_OVER}",
                before=f"if {_SKIPPED_CHUNK}: ...",
            ),
        },
    ),
    Hook(
        "retracted/output",
        "send no output of retracted requests: logprobs may be None",
        Insert(
            "$output_streamer",
            "$output_streamer_class.stream_output",
            "reqs = agentcore.ended_requests.with_results(reqs)",
        ),
    ),
)

REJECTED: tuple[Hook, ...] = (
    Hook(
        "rejected/logprobs",
        "read no logprobs of a rejected request: None crashes the server",
        absent("SGLang returns early"),
        since={
            "0.5.19": Insert(
                TOKENIZER_MANAGER,
                "TokenizerManager.convert_logprob_style",
                "if recv_obj.output_top_logprobs_val is None and (\n"
                "    top_logprobs_num > 0 or token_ids_logprob is not None\n"
                "):\n"
                "    return",
                before="if top_logprobs_num > 0: ...",
            ),
            "0.5.21": absent("SGLang steps over them"),
        },
    ),
)

# A grammar may allow only EOS, which `min_new_tokens` forbids. Then no token has any
# probability, and sampling crashes.
GRAMMARS: tuple[Hook, ...] = (
    Hook(
        "requests/grammar",
        "keep EOS possible: a grammar may allow nothing else",
        Insert(
            MIN_NEW_TOKENS,
            "BatchedMinNewTokensPenalizer._prepare",
            "self.stop_token_penalties.clamp_(min=-1e30)",
            before="self.len_output_tokens = ...",
        ),
    ),
)

FORMATS: tuple[Hook, ...] = (
    Hook(
        "requests/response-format",
        "leave a wrong type to pydantic, whose error names the field",
        Insert(
            PROTOCOL,
            "ChatCompletionRequest.set_json_schema",
            "if not isinstance(response_format, dict):\n    return values",
            after="if not response_format: ...",
        ),
    ),
)

CHECKED_REQUESTS: tuple[Hook, ...] = (
    *CHECKED_PROMPTS,
    *REQUEST_IDS,
    *SCORING,
    *RETRACTED,
    *REJECTED,
    *GRAMMARS,
    *FORMATS,
)
