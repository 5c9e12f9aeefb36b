"""Requests that get the values of others, or bad token IDs."""

from __future__ import annotations

from agentcore_patches.edits import Insert
from agentcore_patches.patches.hooks import Hook, absent
from agentcore_patches.patches.paths import (
    LLGUIDANCE,
    LOGPROB_PROCESSOR,
    LOGPROB_UTILS,
    MIN_NEW_TOKENS,
    OUTPUT_PROCESSOR,
    RESULT_PROCESSOR,
    TOKENIZER_MANAGER,
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


def _without_none(file: str, function: str, suffix: str = "") -> Insert:
    """Return the edit that replaces None in the IDs of each request by no IDs."""
    ids = f"token_ids_logprobs{suffix}"
    code = f"{ids} = [*map(lambda ids: ids or [], {ids})]"
    return Insert(file, f"get_token_ids_logprobs_{function}", code)


HOOKS: tuple[Hook, ...] = (
    # Without `token_ids_logprob`, a request in a batch with one that has it counts as a
    # request for no IDs: None crashes the scheduler, or shifts the values of other
    # requests.
    Hook(
        "requests/scoring-batch",
        "replace None by []: None crashes the copy to the CPU",
        _without_none(LOGPROB_UTILS, "raw"),
        since={
            "0.5.10": _without_none(LOGPROB_UTILS, "raw", "_list"),
            "0.5.16": _without_none(LOGPROB_PROCESSOR, "raw", "_list"),
            "0.5.21": absent("SGLang skips them"),
        },
        upstream="issue 34719",
    ),
    Hook(
        "requests/scoring-chunk",
        "replace None by []: None shifts the values of other requests",
        _without_none(LOGPROB_UTILS, "chunk"),
        since={
            "0.5.16": _without_none(LOGPROB_PROCESSOR, "chunk"),
            "0.5.18": absent("SGLang keeps a place for them"),
        },
        upstream="0.5.18",
    ),
    Hook(
        "requests/retracted-logprobs",
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
        "requests/retracted-output",
        "send no output of retracted requests: logprobs may be None",
        Insert(
            "$output_streamer",
            "$output_streamer_class.stream_output",
            "reqs = agentcore.scheduler.requests.with_results(reqs)",
        ),
        upstream="issue 23154; PR 26510, in part",
    ),
    Hook(
        "requests/rejected-logprobs",
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
        upstream="PR 23441, closed; 0.5.21",
    ),
    # Up to 0.5.12, SGLang has entries only for the requests that want them. It then gives a
    # request the experts of another one, or crashes the tokenizer manager.
    Hook(
        "requests/experts-one-each",
        "keep one entry per request, None if the request wants none",
        Insert(
            OUTPUT_PROCESSOR,
            "SchedulerOutputProcessorMixin.stream_output_generation",
            "if routed_experts is None and req.return_routed_experts:\n"
            "    routed_experts = [None] * (len(rids) - 1)\n"
            "elif routed_experts is not None and not req.return_routed_experts:\n"
            "    routed_experts.append(None)",
            before="if req.return_routed_experts: ...",
        ),
        since={"0.5.13": absent("SGLang does it")},
    ),
    # A grammar may allow only EOS, which `min_new_tokens` forbids. Then no token has any
    # probability: greedy sampling returns token 0, and other sampling crashes.
    Hook(
        "requests/grammar-end",
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
        "requests/grammar-rows",
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
