"""Checks for requests that would crash the engine; part of every patch."""

from __future__ import annotations

from agentcore_patches.edits import Insert
from agentcore_patches.patches._prompts import CHECKED_PROMPTS
from agentcore_patches.patches._request_ids import REQUEST_IDS
from agentcore_patches.patches.hooks import Hook, absent
from agentcore_patches.patches.paths import (
    LLGUIDANCE,
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
            "0.5.21": absent("SGLang skips them"),
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
        "skip a retracted request's prompt logprobs: they shift later ones",
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
            "0.5.21": absent("SGLang skips them"),
        },
    ),
)


def _one_each(values: str, wanted: str, *, first: str = "") -> Hook:
    """Keep one entry per request of an output.

    Up to 0.5.12, SGLang has entries only for the requests that want them. It then gives
    a request those of another one, or crashes the tokenizer manager.

    Args:
        values: the list.
        wanted: the field of a request that wants an entry.
        first: the first release that has them, empty for all releases.
    """
    edit = Insert(
        OUTPUT_PROCESSOR,
        "SchedulerOutputProcessorMixin.stream_output_generation",
        f"if {values} is None and req.{wanted}:\n"
        f"    {values} = [None] * (len(rids) - 1)\n"
        f"elif {values} is not None and not req.{wanted}:\n"
        f"    {values}.append(None)",
        before=f"if req.{wanted}: ...",
    )
    native = absent("SGLang does it")
    return Hook(
        f"one-each/{wanted.removeprefix('return_').replace('_', '-')}",
        "keep one entry per request, None if the request wants none",
        absent("SGLang does not have them") if first else edit,
        since={first: edit, "0.5.13": native} if first else {"0.5.13": native},
    )


def _left_out(values: str, key: str, native: str) -> Hook:
    """Leave an entry that is None out of `meta_info`.

    Args:
        values: the list that has an entry for each request.
        key: the key in `meta_info`.
        native: the first release that does so itself.
    """
    return Hook(
        f"one-each/without-{key.replace('_', '-')}",
        "omit them from responses that do not request them",
        Insert(
            TOKENIZER_MANAGER,
            "TokenizerManager._handle_batch_output",
            f'if "{key}" in meta_info and meta_info["{key}"] is None:\n'
            f'    del meta_info["{key}"]',
            after=f'if getattr(recv_obj, "{values}", None): ...',
        ),
        since={native: absent("SGLang does it")},
    )


ONE_EACH: tuple[Hook, ...] = (
    _one_each("output_hidden_states", "return_hidden_states"),
    _left_out("output_hidden_states", "hidden_states", "0.5.13"),
    _one_each("routed_experts", "return_routed_experts"),
    _left_out("routed_experts", "routed_experts", "0.5.12"),
    _one_each("indexer_topk", "return_indexer_topk", first="0.5.12"),
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
    # With --grammar-backend llguidance, a grammar uses its mask again in the next step,
    # where other requests have its rows: without a grammar, these keep the old mask.
    Hook(
        "grammars/rows",
        "allow every token again: a grammar fills its own row only",
        Insert(
            LLGUIDANCE,
            "GuidanceGrammar.allocate_vocab_mask",
            "bitmask[:] = -1",
            before="return bitmask",
        ),
        since={
            "0.5.14": absent("SGLang makes a new mask for each step"),
        },
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
    *ONE_EACH,
    *GRAMMARS,
    *FORMATS,
)
