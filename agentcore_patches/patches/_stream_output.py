"""Chunks under --stream-output, for `token-ids` and `customized-info`."""

from __future__ import annotations

from agentcore_patches.edits import AddField, Edit, Graft, Insert, Replace
from agentcore_patches.grafts.stream_output import (
    _join_customized_info,
    _merge_queued_chunks,
)
from agentcore_patches.patches._files import TOKENIZER_MANAGER

# Where the servings see whether a stream runs under --stream-output: what goes before, and
# the expression. From v0.5.20 on they have the arguments from elsewhere.
STREAM_OUTPUT_OF_ARGUMENTS = (
    "    server_args = self.tokenizer_manager.server_args\n",
    "server_args.stream_output",
)
STREAM_OUTPUT_OF_CONTEXT = ("", "get_serving().incremental_streaming_output")

# Under --stream-output a chunk has only the new IDs, and v0.5.9 drops all but the last
# of the chunks that queue up before their consumer wakes, and repeats an ID on abort.
# From v0.5.10 on queued chunks are merged, all but `customized_info`, and from v0.5.13 on
# that too; the text is only the new one too, and so are from v0.5.11 on the logprobs, but
# not those of an abort.
WHOLE_STREAM_OUTPUT: tuple[Edit, ...] = (
    Graft(
        TOKENIZER_MANAGER,
        "ReqState",
        _merge_queued_chunks,
        note="no queued chunk is dropped under --stream-output",
        until="0.5.9",
    ),
    Graft(
        TOKENIZER_MANAGER,
        "ReqState",
        _join_customized_info,
        note="per-token metadata of a custom sampler, under --stream-output",
        since="0.5.10",
        until="0.5.12",
    ),
    AddField(
        TOKENIZER_MANAGER,
        "ReqState",
        "customized_info: Dict[str, List[Any]] = dataclasses.field(default_factory=dict)",
        note="per-token metadata of a custom sampler",
        until="0.5.12",
    ),
    Insert(
        TOKENIZER_MANAGER,
        "TokenizerManager._wait_one_response",
        "if self.server_args.stream_output and is_stream:\n"
        "    out = _merge_queued_chunks(state.out_list, state.customized_info)",
        after="out = state.out_list[-1]",
        note="each queued chunk has IDs of its own",
        until="0.5.9",
    ),
    *(
        Insert(
            TOKENIZER_MANAGER,
            "TokenizerManager._wait_one_response",
            "_join_customized_info(out, out_list, state.customized_info)",
            after=after,
            note="each queued chunk has values of its own",
            since=since,
            until=until,
        )
        for after, since, until in (
            ("out = dict(out_list[-1])", "0.5.10", "0.5.10"),
            ("out = self._coalesce_streaming_chunks(...)", "0.5.11", "0.5.12"),
        )
    ),
    Replace(
        TOKENIZER_MANAGER,
        "TokenizerManager._handle_abort_req",
        "output_ids = [output_ids[-1]] if len(output_ids) > 0 else []",
        "output_ids = output_ids.copy()",
        note="all of them, as in every chunk",
    ),
    *(
        Insert(
            TOKENIZER_MANAGER,
            "TokenizerManager._handle_abort_req",
            "if self.server_args.stream_output and is_stream:\n"
            f'    out["output_ids"] = []{others}',
            before="state.out_list.append(out)",
            note="what was generated was handed on before the abort",
            since=since,
            until=until,
        )
        for others, since, until in (
            ("", "", "0.5.9"),
            ('\n    out["text"] = ""', "0.5.10", "0.5.10"),
            (
                '\n    out["text"] = ""\n'
                "    _slice_streaming_output_meta_info(meta_info, len(output_ids))",
                "0.5.11",
                "",
            ),
        )
    ),
)
