"""per-token metadata of custom samplers, whole and in step with `output_ids`

The scheduler sends what is new since its last output; v0.5.9 hands on that alone, so
that of 120 tokens the values of the last 20 arrive (upstream: its PR 27205). Logprobs
stay cumulative in v0.5.9 and are left as they are.
"""

from __future__ import annotations

from agentcore_patches.edits import AddKeyword, Edit, Graft, Insert, Replace
from agentcore_patches.grafts.customized_info import (
    _add_customized_info,
    _send_customized_info,
    _set_customized_info,
)
from agentcore_patches.patches._files import (
    MULTI_TOKENIZER,
    OUTPUT_PROCESSOR,
    OUTPUT_STREAMER,
    RESULT_PROCESSOR,
    TOKENIZER_MANAGER,
)
from agentcore_patches.patches._prompts import CHECKED_PROMPTS
from agentcore_patches.patches._stream_output import WHOLE_STREAM_OUTPUT

_MIXIN = "SchedulerOutputProcessorMixin"
_ACCUMULATOR = "_GenerationStreamAccumulator"

# The sampler may give values in some steps only, or for a batch that others join later:
# v0.5.9 then hands a request's values to another one, or runs out of the list.
# From v0.5.13 on the two places are in files of their own.
COLLECTION: tuple[Edit, ...] = (
    *(
        Graft(
            file,
            scope,
            definition,
            note="per-token metadata of custom samplers, in step with the IDs",
            since=since,
            until=until,
        )
        for file, scope, definition, since, until in (
            (OUTPUT_PROCESSOR, _MIXIN, _set_customized_info, "", "0.5.12"),
            (OUTPUT_PROCESSOR, _MIXIN, _send_customized_info, "", "0.5.12"),
            (OUTPUT_STREAMER, _ACCUMULATOR, _send_customized_info, "0.5.13", "0.5.14"),
        )
    ),
    Replace(
        OUTPUT_PROCESSOR,
        f"{_MIXIN}.maybe_collect_customized_info",
        "req.customized_info[k].append(VALUE)",
        "_set_customized_info(req.customized_info[k], VALUE, len(req.output_ids))",
        note="in step with output_ids",
        until="0.5.12",
    ),
    Insert(
        RESULT_PROCESSOR,
        "SchedulerBatchResultProcessor._maybe_collect_customized_info",
        "values = req.customized_info[k]\n"
        "values.extend([None] * (len(req.output_ids) - 1 - len(values)))",
        before="req.customized_info[k].append(...)",
        note="in step with output_ids",
        since="0.5.13",
    ),
    *(
        Replace(
            file,
            scope,
            f"{own}customized_info[k].append(...)",
            "_send_customized_info(\n"
            f"    {own}customized_info[k],\n"
            "    v,\n"
            f"    len({own}rids) - 1,\n"
            "    send_token_offset,\n"
            "    req.send_token_offset,\n"
            ")",
            note="in step with rids and output_ids",
            since=since,
            until=until,
        )
        for file, scope, own, since, until in (
            (OUTPUT_PROCESSOR, f"{_MIXIN}.stream_output_generation", "", "", "0.5.12"),
            (OUTPUT_STREAMER, f"{_ACCUMULATOR}.accept", "self.", "0.5.13", "0.5.14"),
        )
    ),
    # From v0.5.15 on it does so itself, but for a request that has fewer values.
    Insert(
        OUTPUT_STREAMER,
        f"{_ACCUMULATOR}.accept",
        "if req_values is not None:\n"
        "    req_values.extend([None] * (len(output_ids_) - len(req_values)))",
        before="self.customized_info[key].append(...)",
        note="in step with output_ids",
        since="0.5.15",
        until="0.5.21",
    ),
    Insert(
        OUTPUT_STREAMER,
        f"{_ACCUMULATOR}.accept",
        "req_values.extend([None] * (len(output_ids_) - len(req_values)))",
        before="values = req_values[send_token_offset : len(output_ids_)]",
        note="in step with output_ids",
        since="0.5.22",
    ),
)

RESPONSE_FIELDS = ()

ACCUMULATION: tuple[Edit, ...] = (
    Graft(
        TOKENIZER_MANAGER,
        "TokenizerManager",
        _add_customized_info,
        note="per-token metadata of custom samplers, in step with the IDs",
        until="0.5.12",
    ),
    *(
        Replace(
            TOKENIZER_MANAGER,
            "TokenizerManager._handle_batch_output",
            "meta_info[k] = v[i]",
            "_add_customized_info(\n"
            "    state,\n"
            "    meta_info,\n"
            "    k,\n"
            "    v[i] if i < len(v) else None,\n"
            "    self.server_args.stream_output,\n"
            f"{live})",
            note="in step with output_ids",
            since=since,
            until=until,
        )
        for live, since, until in (
            ("", "", "0.5.10"),
            # The IDs of a chunk are the list that goes on growing.
            ("    live=True,\n", "0.5.11", "0.5.12"),
        )
    ),
    # From v0.5.13 on the values of all tokens are kept, if there are any for each token of
    # each request.
    Insert(
        TOKENIZER_MANAGER,
        "TokenizerManager._handle_batch_output",
        "if i >= len(v) or v[i] is None:\n    continue",
        before="if k not in state.customized_info_accumulated: ...",
        note="the sampler gave this request none",
        since="0.5.13",
        until="0.5.14",
    ),
    Insert(
        TOKENIZER_MANAGER,
        "TokenizerManager._handle_batch_output",
        "kept = state.customized_info_accumulated[k]\n"
        "kept.extend([None] * (len(state.output_ids) - len(kept)))",
        before="state.customized_info_accumulated[k].extend(v[i])",
        note="in step with output_ids",
        since="0.5.13",
        until="0.5.18",
    ),
    Insert(
        TOKENIZER_MANAGER,
        "TokenizerManager._accumulate_request_meta_info",
        "accumulated.extend([None] * (len(state.output_ids) - len(accumulated)))",
        before="accumulated.extend(values)",
        note="in step with output_ids",
        since="0.5.19",
    ),
    *(
        Insert(
            TOKENIZER_MANAGER,
            "TokenizerManager._handle_abort_req",
            f"for key, values in state.{kept}.items():\n"
            f"{unless_hidden}"
            "    incremental = self.server_args.stream_output and is_stream\n"
            "    meta_info[key] = [] if incremental else values.copy()",
            before="state.out_list.append(out)",
            note="in step with output_ids",
            since=since,
            until=until,
        )
        for kept, unless_hidden, since, until in (
            ("customized_info", "", "", "0.5.12"),
            ("customized_info_accumulated", "", "0.5.13", "0.5.22"),
            # From v0.5.23 on some of it may be for nobody else.
            (
                "customized_info_accumulated",
                "    if key not in state.customized_info_reported_keys:\n"
                "        continue\n",
                "0.5.23",
                "",
            ),
        )
    ),
)

# With several tokenizer workers each request's output is cut out of its batch, and the
# worker then takes element 0 of every field, of the values of a dict as well.
TOKENIZER_WORKERS: tuple[Edit, ...] = (
    *(
        Replace(
            MULTI_TOKENIZER,
            "_extract_field_by_index",
            old,
            "new_field[k] = [v[index] if index < len(v) else None]",
            note="a batch of one, as for the fields that are lists",
            since=since,
            until=until,
        )
        for old, since, until in (
            ("new_field[k] = v[index]", "", "0.5.11"),
            ("new_field[k] = v[index] if len(v) > index else None", "0.5.12", "0.5.14"),
        )
    ),
    AddKeyword(
        MULTI_TOKENIZER,
        "_handle_output_by_index",
        "BatchTokenIDOutput",
        "customized_info=_extract_field_by_index(\n"
        '    output, "customized_info", i, check_length=False\n'
        ")",
        until="0.5.11",
    ),
)

EDITS: tuple[Edit, ...] = (
    *CHECKED_PROMPTS,
    *COLLECTION,
    *TOKENIZER_WORKERS,
    *WHOLE_STREAM_OUTPUT,
    *ACCUMULATION,
)
