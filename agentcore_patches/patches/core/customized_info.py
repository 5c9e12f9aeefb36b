"""Per-token metadata from custom samplers: one value per output token.

The scheduler sends the values that are new since its last output. 0.5.9 passes on only
these, so of 120 tokens only the last 20 have values (upstream fix: PR 27205). Logprobs
are cumulative in 0.5.9 and are left as they are.

Under --stream-output, a chunk has only new token IDs. If several chunks queue up before
their reader wakes up, 0.5.9 drops all but the last. From 0.5.10 on, SGLang merges queued
chunks except for `customized_info`; from 0.5.13 on, it merges that as well. `finish` in
`landing/http/ended_requests.py` handles the chunk of an abort.
"""

from __future__ import annotations

from agentcore_patches.edits import AddKeyword, Insert, Replace
from agentcore_patches.patches.hooks import Hook, absent
from agentcore_patches.patches.paths import (
    MULTI_TOKENIZER,
    OUTPUT_STREAMER,
    TOKENIZER_MANAGER,
)

HOOKS: tuple[Hook, ...] = (
    # The sampler may return values in some steps only, or for a batch that others join
    # later. 0.5.9 then gives a request's values to another request, or fails with an
    # IndexError.
    Hook(
        "customized-info/collect",
        "pad with None for tokens without a value",
        Insert(
            "$result_processor",
            "$collect_customized_info",
            "agentcore.shared.customized_info.pad(\n"
            "    req.customized_info[k], len(req.output_ids) - 1\n"
            ")",
            before="req.customized_info[k].append(...)",
        ),
    ),
    Hook(
        "customized-info/send",
        "send exactly one value per token ID",
        Replace(
            "$output_streamer",
            "$stream_output_generation",
            "${output_lists}customized_info[$KEY].append(...)",
            "agentcore.shared.customized_info.add_to_column(\n"
            "    ${output_lists}customized_info[$KEY],\n"
            "    req.customized_info[$KEY],\n"
            "    len(${output_lists}rids) - 1,\n"
            "    send_token_offset,\n"
            "    req.send_token_offset,\n"
            ")",
        ),
        since={
            # Values of the request itself, which are not one per token, are sent
            # separately.
            "0.5.22": Insert(
                OUTPUT_STREAMER,
                "$stream_output_generation",
                "agentcore.shared.customized_info.pad(req_values, len(output_ids_))",
                before="values = req_values[send_token_offset : len(output_ids_)]",
            ),
        },
    ),
    # With several tokenizer workers, each request's output is cut out of its batch. The
    # worker then takes element 0 of every field, also of the lists in a dict.
    Hook(
        "customized-info/output-of-request",
        "cut a dict of columns to a batch of one, like the lists",
        Insert(
            MULTI_TOKENIZER,
            "_extract_field_by_index",
            "if isinstance(field, dict):\n"
            "    return agentcore.shared.customized_info.cut_to_request(field, index)",
            after="field = getattr(output, field_name, None)",
        ),
        since={
            "0.5.15": absent("SGLang makes a batch of one"),
        },
    ),
    Hook(
        "customized-info/token-output-of-request",
        "pass the values on with --skip-tokenizer-init as well",
        AddKeyword(
            MULTI_TOKENIZER,
            "_handle_output_by_index",
            "BatchTokenIDOutput",
            "customized_info=_extract_field_by_index(\n"
            '    output, "customized_info", i, check_length=False\n'
            ")",
        ),
        since={
            "0.5.12": absent("SGLang has it"),
        },
    ),
    Hook(
        "customized-info/accumulate",
        "keep the values of all tokens, one per token ID",
        Replace(
            TOKENIZER_MANAGER,
            "TokenizerManager._handle_batch_output",
            "meta_info[k] = v[i]",
            "agentcore.shared.customized_info.add_to_output(\n"
            "    self, state, meta_info, k, v, i\n"
            ")",
        ),
        since={
            # SGLang keeps the values of all tokens, if every token has one.
            "0.5.13": Insert(
                TOKENIZER_MANAGER,
                "TokenizerManager._handle_batch_output",
                "if i >= len(v) or v[i] is None:\n"
                "    continue\n"
                "agentcore.shared.customized_info.pad(\n"
                "    state.customized_info_accumulated.setdefault(k, []),\n"
                "    len(state.output_ids),\n"
                ")",
                before="if k not in state.customized_info_accumulated: ...",
            ),
            "0.5.19": Insert(
                TOKENIZER_MANAGER,
                "TokenizerManager._accumulate_request_meta_info",
                "agentcore.shared.customized_info.pad(accumulated, len(state.output_ids))",
                before="accumulated.extend(values)",
            ),
        },
        upstream="PR 27205",
    ),
    Hook(
        "stream-output/merge-queued",
        "merge queued chunks: each has only its own token IDs and values",
        Insert(
            TOKENIZER_MANAGER,
            "TokenizerManager._wait_one_response",
            "if is_stream and $stream_output:\n"
            "    out = agentcore.http.stream_output.merge_queued(state)",
            after="out = state.out_list[-1]",
        ),
        since={
            "0.5.10": Insert(
                TOKENIZER_MANAGER,
                "TokenizerManager._wait_one_response",
                "if incremental_stream:\n"
                "    agentcore.http.stream_output.join_customized_info(out, out_list, state)",
                after="if incremental_stream and len(out_list) > 1: ...",
            ),
            "0.5.13": absent("SGLang joins all that is new in a chunk"),
        },
    ),
)
