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
    TOKENIZER_MANAGER,
)
from agentcore_patches.patches._shared import CHECKED_PROMPTS, WHOLE_STREAM_OUTPUT

# The sampler may give values in some steps only, or for a batch that others join later:
# v0.5.9 then hands a request's values to another one, or runs out of the list.
COLLECTION: tuple[Edit, ...] = (
    *(
        Graft(
            OUTPUT_PROCESSOR,
            "SchedulerOutputProcessorMixin",
            definition,
            note="per-token metadata of custom samplers, in step with the IDs",
        )
        for definition in (_set_customized_info, _send_customized_info)
    ),
    Replace(
        OUTPUT_PROCESSOR,
        "SchedulerOutputProcessorMixin.maybe_collect_customized_info",
        "req.customized_info[k].append(VALUE)",
        "_set_customized_info(req.customized_info[k], VALUE, len(req.output_ids))",
        note="in step with output_ids",
    ),
    Replace(
        OUTPUT_PROCESSOR,
        "SchedulerOutputProcessorMixin.stream_output_generation",
        "customized_info[k].append(...)",
        "_send_customized_info(\n"
        "    customized_info[k],\n"
        "    v,\n"
        "    len(rids) - 1,\n"
        "    send_token_offset,\n"
        "    req.send_token_offset,\n"
        ")",
        note="in step with rids and output_ids",
    ),
)

RESPONSE_FIELDS = ()

ACCUMULATION: tuple[Edit, ...] = (
    Graft(
        TOKENIZER_MANAGER,
        "TokenizerManager",
        _add_customized_info,
        note="per-token metadata of custom samplers, in step with the IDs",
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
            ("    live=True,\n", "0.5.11", ""),
        )
    ),
    Insert(
        TOKENIZER_MANAGER,
        "TokenizerManager._handle_abort_req",
        "for key, values in state.customized_info.items():\n"
        "    incremental = self.server_args.stream_output and is_stream\n"
        "    meta_info[key] = [] if incremental else values.copy()",
        before="state.out_list.append(out)",
        note="in step with output_ids",
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
            ("new_field[k] = v[index] if len(v) > index else None", "0.5.12", ""),
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
